"""Values of the app as the API shows them: durations as `…_seconds`, fences as text, arguments only on request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_SECONDS = "_seconds"
call_of = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]]).decode
"""Return the arguments of a stored call, positional and by name."""
raw_call_of = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]).decode
"""Return the same as JSON that is passed on as it is."""


def shown(kind: type[T], value: object, **more: Any) -> T:
    """Return a value as another type: field by field, with durations in seconds and fences as text."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        name = field.name
        if name in more:
            fields[name] = more[name]
        elif hasattr(value, name):
            found = getattr(value, name)
            fields[name] = str(found) if name == "fence" else found
        elif name.endswith(_SECONDS):
            fields[name] = in_seconds(getattr(value, name.removesuffix(_SECONDS)))
    return kind(**fields)


def in_seconds(span: timedelta | float | None) -> float | None:
    """Return a duration in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else span
