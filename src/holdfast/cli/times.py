"""Durations and instants as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def duration(text: str) -> float:
    """Return the seconds of a duration given as a number, or with a unit: `500ms`, `30s`, `5m`, `2h`, `7d`."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is no duration: give seconds, or a number with ms, s, m, h or d, as in 5m"
        raise click.BadParameter(message)
    return float(match[1]) * _UNITS[match[2] or "s"]


def span(time: timedelta) -> str:
    """Return a duration in its two largest units: `3m 20s`."""
    seconds = time.total_seconds()
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    for size, unit, lesser, lesser_unit in _STEPS:
        if seconds >= size:
            large, rest = divmod(int(seconds), size)
            small = rest // lesser
            return f"{sign}{large}{unit} {small}{lesser_unit}" if small else f"{sign}{large}{unit}"
    return f"{sign}{seconds:.1f}s" if seconds < 10 else f"{sign}{int(seconds)}s"  # noqa: PLR2004


def relative(instant: datetime, now: datetime | None = None) -> str:
    """Return an instant as seen from now: `3m 20s ago`, `in 5m`."""
    distance = (now or datetime.now(UTC)) - instant
    if distance < timedelta(0):
        return f"in {span(-distance)}"
    return f"{span(distance)} ago"


def iso(instant: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, to the microsecond."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
