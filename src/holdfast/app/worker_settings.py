"""The settings of a worker as a caller gives them: checked, with the remedy in the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import ConfigError
from holdfast.worker.settings import Settings
from holdfast.worker.worker import Worker


def make_settings(**given: Any) -> Settings:
    """Return the settings; refuse an unknown one and one of the wrong type."""
    unknown = sorted(given.keys() - set(Settings.__struct_fields__))
    if unknown:
        known = ", ".join(Settings.__struct_fields__)
        message = f"app.worker: there is no setting {', '.join(unknown)}: there are {known}"
        raise ConfigError(message)
    try:
        return msgspec.convert(given, Settings)
    except msgspec.ValidationError as error:
        message = f"app.worker: {str(error).replace(' - at `$.', ' for `')}; numbers are given as numbers"
        raise ConfigError(message) from None


def check_queues(queues: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of the queues to serve; None for all."""
    if isinstance(queues, str):
        message = f"queues={queues!r} is one text: pass a list, as in queues=[{queues!r}]"
        raise ConfigError(message)
    if queues is not None and not queues:
        message = "queues=[] names none, so nothing would be claimed: name some, or leave it out for every queue"
        raise ConfigError(message)
    return None if queues is None else tuple(queues)


def check_worker_class(worker_class: object) -> None:
    """Refuse what cannot be a worker."""
    if not isinstance(worker_class, type) or not issubclass(worker_class, Worker):
        message = f"worker_class={worker_class!r} is no subclass of holdfast.Worker: derive it from that"
        raise ConfigError(message)
