"""Durations as callers pass them: seconds as a number, or a timedelta."""

from __future__ import annotations

from datetime import timedelta

from holdfast.errors import ConfigError
from holdfast.model.numbers import is_vast

LONGEST = timedelta(days=36_525)  # 100 years: anything longer is a mistake, most often milliseconds
_LONGEST_SECONDS = LONGEST.total_seconds()
_ZERO = timedelta(0)


def to_span(value: float | timedelta, what: str) -> timedelta:
    """Return the duration as a timedelta; raise `ConfigError`, naming the setting `what`, if the value is not one."""
    if isinstance(value, timedelta):
        if _ZERO <= value <= LONGEST:
            return value
        raise ConfigError(_out_of_range(what, value, negative=value < _ZERO))
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{what} is {value!r}, not a duration: pass seconds as a number, or a timedelta")
    if 0 <= value <= _LONGEST_SECONDS:
        return timedelta(seconds=value)
    if value < 0 or value > _LONGEST_SECONDS:
        raise ConfigError(_out_of_range(what, value, negative=value < 0))
    raise ConfigError(f"{what} is not a number (NaN): pass seconds as a finite number, or a timedelta")


def _out_of_range(what: str, value: float | timedelta, *, negative: bool) -> str:
    shown = "enormous" if is_vast(value) else str(value)
    unit = "" if isinstance(value, timedelta) else " seconds"
    if negative:
        return f"{what} is {shown}{unit}: a duration cannot be negative, pass 0 or more"
    return f"{what} is {shown}{unit}: more than 100 years, pass less (numbers are seconds, not milliseconds)"
