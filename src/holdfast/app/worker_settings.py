"""The settings of a worker as callers pass them: typed for editors, checked, with the remedy in the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, get_args, get_type_hints

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.declarations import Declarations
from holdfast.model.duration import to_span
from holdfast.model.limits import Limit, LimitKey
from holdfast.store.capabilities import JOBS
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.app.app import App

_STUCK_GRACE: Final = 10.0


class DrainSettings(TypedDict, total=False):
    """The settings of the worker of `app.drain`; durations in seconds or as timedeltas.

    `worker_class` is a subclass of `Worker` with its own `process`. If a handler still runs `stuck_grace` after its
    time limit, `drain` and `worker.run()` raise `WorkerBroken` and leave its lease to expire; `run_worker`, which owns
    its process, ends the process. `worker.settings.WorkerConfig` documents the others and their defaults.
    """

    worker_id: str | None
    lease: float | timedelta
    extend_at: float
    poll_interval: float | timedelta
    drain_timeout: float | timedelta
    worker_class: type[Worker]
    stuck_grace: float | timedelta
    flush_rows: int
    flush_after: float | timedelta
    release_timeout: float | timedelta
    abort_grace: float | timedelta
    promote_every: float | timedelta
    rescue_every: float | timedelta | None
    prune_every: float | timedelta
    promote_limit: int
    rescue_limit: int
    prune_limit: int


class WorkerSettings(DrainSettings, total=False):
    """The settings of a worker: `queues` are the queues it serves, by default all; see `DrainSettings`."""

    queues: Sequence[str] | None
    concurrency: int
    until_empty: bool
    prefetch_max: int
    batch_max: int


DRAIN_SETTINGS: Final = tuple(DrainSettings.__annotations__)
WORKER_SETTINGS: Final = tuple(WorkerSettings.__annotations__)
_DURATIONS: Final = [
    name
    for name, kind in get_type_hints(WorkerSettings).items()
    if timedelta in get_args(kind) and name in WorkerConfig.__struct_fields__
]


def make_worker(app: App, given: Mapping[str, Any], *, until_idle: bool = False, owns_process: bool = False) -> Worker:
    """Return a worker over the tasks of an app; raises `ConfigError` for an invalid setting.

    With `until_idle` it ends when no job is ready, although jobs may be scheduled or running elsewhere.
    With `owns_process` it ends the process if a handler is stuck.
    """
    app.backend.capabilities.require(JOBS)
    rest = dict(given)
    worker_id = rest.pop("worker_id", None)
    queues = _check_queues(rest.pop("queues", None))
    worker_class = _check_worker_class(rest.pop("worker_class", Worker))
    stuck_grace = to_span(rest.pop("stuck_grace", _STUCK_GRACE), "stuck_grace").total_seconds()
    worker = worker_class(
        app.backend,
        list(app.tasks),
        _make_settings(rest),
        worker_id=worker_id,
        queues=queues,
        retention=app.retention,
        stuck_grace=stuck_grace,
        until_idle=until_idle,
    )
    worker.limits = _limits(app)
    worker.hooks = app.hooks
    worker.owns_process = owns_process
    if not until_idle and not worker.settings.until_empty:  # those end, and leave schedules to workers that stay
        worker.declared = Declarations(app.name, dict(app.schedules.declared))
    return worker


def _limits(app: App) -> dict[LimitKey, Limit | None]:
    """Return what the code says of limits: of each task, also that it has none, and of the queues that it names."""
    limits = {LimitKey("queue", name): limit for name, limit in app.queue_limits.items()}
    for task in app.tasks:
        limits |= {LimitKey("task", task.name): task.limit, LimitKey("key", task.name): task.key_limit}
    return limits


def _make_settings(given: dict[str, Any]) -> WorkerConfig:
    """Return the settings; raise `ConfigError` for one of the wrong type."""
    for name in _DURATIONS:
        if name in given and (given[name] is not None or name != "rescue_every"):
            given[name] = to_span(given[name], name).total_seconds()
    try:
        return msgspec.convert(given, WorkerConfig)
    except msgspec.ValidationError as error:
        message = f"app.worker: {str(error).replace(' - at `$.', ' for `')}; numbers are given as numbers"
        raise ConfigError(message) from None


def _check_queues(queues: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of the queues to serve; None for all."""
    if isinstance(queues, str):
        message = f"queues={queues!r} is a string: pass a list, as in queues=[{queues!r}]"
        raise ConfigError(message)
    if queues is not None and not queues:
        message = "queues=[] is empty, so nothing would be claimed: name some, or leave it out for every queue"
        raise ConfigError(message)
    return None if queues is None else tuple(queues)


def _check_worker_class(worker_class: object) -> type[Worker]:
    """Return a subclass of `Worker` or raise `ConfigError`."""
    if not isinstance(worker_class, type) or not issubclass(worker_class, Worker):
        message = f"worker_class={worker_class!r} is not a subclass of holdfast.Worker: derive it from that"
        raise ConfigError(message)
    return worker_class
