"""Parse durations and instants."""

from __future__ import annotations

import re
from datetime import datetime

import click

_SIZES = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_NUMBER = r"\d+(?:\.\d+)?"
_PLAIN = re.compile(_NUMBER)
# The largest unit first, each at most once. The `m` of minutes must not be that of `ms`.
_WRITTEN = re.compile(
    r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in ("d", "h", "m(?!s)", "s", "ms")),
)


def duration(text: str) -> float:
    """Return the seconds of a duration written as a number or with units: `500ms`, `30s`, `5m`, `1h 30m`, `7d`."""
    written = text.strip()
    if _PLAIN.fullmatch(written):
        return float(written)
    match = _WRITTEN.fullmatch(written)
    if match is None or not written:
        message = (
            f"{text!r} is not a duration: give seconds, or numbers with d, h, m, s or ms, the largest unit first, "
            "as in 90, 5m or 1h 30m"
        )
        raise click.BadParameter(message)
    return sum(float(number) * size for number, size in zip(match.groups(), _SIZES, strict=True) if number)


def instant(text: str) -> datetime:
    """Return the instant of an ISO 8601 string; without a time zone it is ambiguous and rejected."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time: write it like 2026-03-01T00:00:00Z") from None
    if found.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone: add Z for UTC, or an offset like +02:00")
    return found
