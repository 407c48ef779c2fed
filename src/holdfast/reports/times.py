"""Durations and instants as texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


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


def now() -> datetime:
    """Return the time of this host, for output that is read now."""
    return datetime.now(UTC)


def relative(instant: datetime, since: datetime | None = None) -> str:
    """Return an instant relative to now: `3m 20s ago`, `in 5m`."""
    distance = (since or now()) - instant
    if distance < timedelta(0):
        return f"in {span(-distance)}"
    return f"{span(distance)} ago"


def iso(instant: datetime) -> str:
    """Return an instant as ISO 8601 in UTC with microseconds."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
