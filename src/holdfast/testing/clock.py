"""A clock that only moves as a test says."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.instants import span_micros, to_datetime

_START_US = 1_700_000_000_000_000


class ManualClock:
    """A store clock for tests: returns microseconds since 1970, and stays constant until it is advanced.

    `after_reading`: by how much it moves after each reading, negative for a clock that is being set back.
    """

    def __init__(self, start_us: int = _START_US) -> None:
        self._now_us = start_us
        self.after_reading = timedelta()

    def __call__(self) -> int:
        """Return the current time in microseconds."""
        read = self._now_us
        self.advance(self.after_reading)
        return read

    @property
    def now(self) -> datetime:
        """The current time as an aware datetime."""
        return to_datetime(self._now_us)

    def advance(self, span: timedelta | float) -> None:
        """Advance by a duration (a timedelta or seconds); a negative one sets the clock back."""
        by = span if isinstance(span, timedelta) else timedelta(seconds=span)
        self._now_us += span_micros(by)
