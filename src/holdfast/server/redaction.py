"""What is shown of arguments, headers and results: values under names that suggest a secret are replaced.

The hook of the server comes first, and can replace or hide more. Workers receive everything: only views are redacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.server.state import ServerSettings

REDACTED: Final = "[redacted]"
_SECRET: Final = re.compile(
    r"pass_?(word|wd|phrase|code)|secret|token|credential|authorization|cookie|session_?id(?![a-z])|connection_?string"
    r"|(api|access|private|encryption|signing|ssh|client|master|deploy|pass)_?key|card_?number|iban"
    r"|(?<![a-z])(pin|pwd|cv[vc]|ssn|jwt|dsn|bearer|t?otp)(?![a-z])|(?<![a-z])(auth|pass)$"
)
_NO_WORD: Final = re.compile(r"[^a-zA-Z0-9]+|(?<=[a-z0-9])(?=[A-Z])")


def redacted(settings: ServerSettings, task: str, text: str | None) -> Any:
    """Return stored JSON as data that may be shown; damaged JSON as the text that is stored."""
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return redacted_data(settings, task, value)


def redacted_data(settings: ServerSettings, task: str, value: Any) -> Any:
    """Return data that may be shown."""
    if settings.redact is not None:
        value = settings.redact(task, value)
    return _without_secrets(value)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {name: REDACTED if _is_secret(name) else _without_secrets(inner) for name, inner in pairs}
    if isinstance(value, list):
        return list(map(_without_secrets, cast("Iterable[Any]", value)))
    return value


def _is_secret(name: str) -> bool:
    return _SECRET.search(_NO_WORD.sub("_", name).lower()) is not None
