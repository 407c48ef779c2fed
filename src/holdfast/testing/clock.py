"""A clock that moves only by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.instants import span_micros, to_datetime

_START_US = 1_700_000_000_000_000


class ManualClock:
    """A clock for a store: returns microseconds since 1970, the same until it is advanced."""

    def __init__(self, start_us: int = _START_US) -> None:
        self._now_us = start_us

    def __call__(self) -> int:
        """Return the present instant in microseconds."""
        return self._now_us

    @property
    def now(self) -> datetime:
        """The present instant as an aware datetime."""
        return to_datetime(self._now_us)

    def advance(self, span: timedelta | float) -> None:
        """Move on by a duration, given as a timedelta or in seconds; it may be negative, as a clock set back is."""
        by = span if isinstance(span, timedelta) else timedelta(seconds=span)
        self._now_us += span_micros(by)
