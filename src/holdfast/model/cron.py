"""The times of a cron expression in a time zone, with one rule for the days on which clocks are changed.

```text
   hours are named       "30 2 * * *"     a time that the clocks skip:        once, right after the gap
                                          a time that the clocks show twice:  once, the first time
   every hour            "*/5 * * * *"    by elapsed time: nothing in the gap, and again in the repeated hour
```

`cronsim` matches the fields, as Debian's cron does: if both the day of the month and the day of the week are given, one
of them is enough.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.errors import ConfigError
from holdfast.model.instants import EPOCH, MICROSECOND, to_datetime

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_HOURS = 24
_START = datetime(2000, 1, 1)  # noqa: DTZ001 - any local time
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name; raises `ConfigError` if this system does not know it."""
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError
        remedy = "pass a name such as Europe/Vienna or UTC; if it is right, install the package tzdata"
        raise ConfigError(f"timezone={name!r} is unknown on this system: {remedy}") from error


class CronTimes:
    """The times of a checked expression, as instants."""

    __slots__ = ("_expression", "_is_hourly", "_zone")

    def __init__(self, expression: str, zone: tzinfo) -> None:
        fields = _ALIASES.get(expression.strip().lower(), expression).split()
        if len(fields) != _FIELDS:
            remedy = "pass minute, hour, day of month, month and day of week, or every=timedelta(seconds=…)"
            raise ConfigError(f"cron expression {expression!r} does not have five fields: {remedy}")
        try:
            parsed = CronSim(" ".join(fields), _START)
        except (CronSimError, AssertionError, ValueError) as error:
            remedy = 'pass one such as "*/5 * * * *" or "30 2 * * MON-FRI"'
            raise ConfigError(f"cron expression {expression!r} is invalid ({error}): {remedy}") from error
        self._is_hourly = len(parsed.hours) == _HOURS
        self._expression = " ".join(fields)
        self._zone = zone

    def after(self, instant: int) -> int | None:
        """Return the first time after an instant; None if there is none within 50 years."""
        try:
            if self._is_hourly:
                return self._by_elapsed_time(instant)
            for time in CronSim(self._expression, self._local(instant)):
                found = self._instant(time)
                if found > instant:  # else it belongs to the first pass of a repeated hour, or to a gap that has ended
                    return found
        except OverflowError:  # beyond the last year
            pass
        return None

    def _by_elapsed_time(self, instant: int) -> int | None:
        """Return the first instant after one at which the clocks show a time that matches.

        The search goes from one change of the clocks to the next: between two, local time is elapsed time. `cronsim`
        itself steps by the hour, and so misses a time that is shown again after a change by half an hour.
        """
        local = self._local(instant)
        while True:
            time = next(CronSim(self._expression, local), None)
            if time is None:
                return None
            found = _micros(time.replace(tzinfo=UTC) - self._offset(instant))
            # A change that shows past times again is at most a day away: a later one repeats only what did not match.
            nearby = min(found, instant + _DAY)
            changed = nearby if self._offset(nearby) != self._offset(instant) else found
            if self._offset(changed) == self._offset(instant):
                return found
            instant = self._change(instant, changed)
            local = self._local(instant) - MICROSECOND  # the time that the clocks show then may match

    def _instant(self, time: datetime) -> int:
        """Return when the clocks first show a local time; if they skip it, the end of the gap."""
        found = _micros(time.replace(tzinfo=self._zone, fold=0))
        if self._local(found) == time:
            return found
        # In a gap, `fold=0` reckons with the offset before it and gives an instant after its end; `fold=1` the reverse.
        return self._change(_micros(time.replace(tzinfo=self._zone, fold=1)), found)

    def _change(self, before: int, after: int) -> int:
        """Return the second of a change of the clocks between two instants with different offsets."""
        low, high = before // _SECOND, after // _SECOND
        offset = self._offset(before)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle * _SECOND) == offset:
                low = middle
            else:
                high = middle
        return high * _SECOND

    def _local(self, instant: int) -> datetime:
        return to_datetime(instant).astimezone(self._zone).replace(tzinfo=None)

    def _offset(self, instant: int) -> timedelta:
        return to_datetime(instant).astimezone(self._zone).utcoffset() or timedelta()


def _micros(time: datetime) -> int:
    return (time - EPOCH) // MICROSECOND


@lru_cache(maxsize=1024)
def cron_times(expression: str, timezone: str) -> CronTimes:
    """Check an expression and a time zone; raises `ConfigError` with the remedy, also if it never matches."""
    times = CronTimes(expression, zone_of(timezone))
    if times.after(_micros(_START.replace(tzinfo=EPOCH.tzinfo))) is None:
        raise ConfigError(f"cron expression {expression!r} matches no day: check the day of the month and the month")
    return times
