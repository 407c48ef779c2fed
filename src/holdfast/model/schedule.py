"""When a schedule fires: pure decisions from its definition, its row and the store's clock.

A schedule has nominal times. Each becomes exactly one job, whose id follows from the schedule's name and the nominal
time: any worker may fire it, even twice, and it is the same job.

```text
   missed   what fires at `now`, of the nominal times that are due
   skip     the latest, if it is at most a minute old
   once     the latest, if it is not older than the window
   all      each that is not older than the window, the oldest first
```
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, cast

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.cron import cron_times
from holdfast.model.duration import LONGEST, to_span
from holdfast.model.instants import span_micros

GRACE = timedelta(minutes=1)
"""Up to this long after its nominal time a job is not late; and the clock may step back by as much without effect."""
WINDOW = timedelta(days=1)
SHORTEST = timedelta(seconds=1)
FUTURE = 2**62  # microseconds: later than every instant
_SPREAD = 8  # bytes of the hash from which jitter is drawn


class Missed(StrEnum):
    """How nominal times are handled that passed while no worker ran."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


MissedName = Literal["skip", "once", "all"]


class Recurrence(msgspec.Struct, frozen=True):
    """The nominal times of a schedule, by a cron expression in a time zone or by a fixed period; checked.

    Those of a period are multiples of it since 1970, so they do not depend on when the schedule was defined. Each job
    is due up to `jitter` after its nominal time, always by the same amount.
    """

    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    jitter: timedelta = timedelta(0)
    missed: Missed = Missed.ONCE
    window: timedelta = WINDOW

    def after(self, instant: int) -> int | None:
        """Return the first nominal time after an instant; None if there is none within 50 years."""
        if self.every is not None:
            period = span_micros(self.every)
            return (instant // period + 1) * period
        return cron_times(self.cron or "", self.timezone).after(instant)

    def latest(self, now: int, not_before: int) -> int | None:
        """Return the last nominal time up to `now`; None if it is earlier than `not_before`."""
        if self.every is not None:
            period = span_micros(self.every)
            found = now // period * period
            return found if found >= not_before else None
        # An expression is followed forwards only: from the recent past, then from four times as long ago, and so on.
        span = span_micros(GRACE)
        while True:
            start = max(now - span, not_before) - 1
            latest, time = None, self.after(start)
            while time is not None and time <= now:
                latest, time = time, self.after(time)
            if latest is not None or start < not_before:
                return latest
            span *= 4

    def text(self) -> str:
        """Return the expression or the period as text."""
        return f"every {self.every}" if self.cron is None else self.cron


def recurrence(
    cron: object = None,
    *,
    every: float | timedelta | None = None,
    timezone: object = "UTC",
    jitter: float | timedelta = timedelta(0),
    missed: object = Missed.ONCE,
    window: float | timedelta = WINDOW,
) -> Recurrence:
    """Check the settings of a schedule's times; raises `ConfigError` with the remedy."""
    if (cron is None) == (every is None):
        remedy = 'pass a cron expression, as in "*/5 * * * *", or every=timedelta(minutes=5)'
        raise ConfigError(f"a schedule needs either a cron expression or a period: {remedy}")
    if not isinstance(timezone, str):
        raise ConfigError(f"timezone={timezone!r} is not a string: pass a name such as Europe/Vienna")
    if missed not in list(Missed):
        raise ConfigError(f"missed={missed!r} is unknown: pass one of {', '.join(Missed)}")
    if cron is not None:
        if not isinstance(cron, str):
            raise ConfigError(f'cron expression {cron!r} is not a string: pass one such as "*/5 * * * *"')
        cron_times(cron, timezone)
    elif timezone != "UTC":
        raise ConfigError("timezone has no effect on every=…: leave it out, or pass a cron expression")
    return Recurrence(
        cron=cron,
        every=None if every is None else _period(every),
        timezone=timezone,
        jitter=to_span(jitter, "jitter"),
        missed=Missed(cast("str", missed)),
        window=to_span(window, "window"),
    )


def _period(every: float | timedelta) -> timedelta:
    period = to_span(every, "every")
    if period < SHORTEST:
        raise ConfigError(f"every={every} is too short: a schedule fires at most once a second")
    return period


class Firing(NamedTuple):
    """What a schedule that is due fires now, and when it is due next; `next_at` is `FUTURE` for never."""

    times: list[int]
    next_at: int


def firing(times: Recurrence, next_at: int, now: int, limit: int) -> Firing:
    """Decide what fires, at most `limit` nominal times; if more are due, `next_at` is the first of those."""
    if next_at > now:
        return Firing([], next_at)
    if times.missed is Missed.ALL:
        oldest = now - span_micros(min(times.window, LONGEST))
        time = next_at if next_at >= oldest else times.after(oldest - 1)
        found: list[int] = []
        while time is not None and time <= now and len(found) < limit:
            found.append(time)
            time = times.after(time)
        return Firing(found, FUTURE if time is None else time)
    age = GRACE if times.missed is Missed.SKIP else times.window
    latest = times.latest(now, max(next_at, now - span_micros(age)))
    return Firing([] if latest is None else [latest], first_after(times, now))


def first_after(times: Recurrence, now: int) -> int:
    """Return the next nominal time of a schedule that begins or resumes at `now`; `FUTURE` for never."""
    found = times.after(now)
    return FUTURE if found is None else found


def is_set_back(decided_at: int, now: int) -> bool:
    """Return whether the clock was set back since the next time of a schedule was decided, by more than `GRACE`.

    That time may then be far ahead, and is decided again. Nominal times that fired before become the same jobs again.
    """
    return now < decided_at - span_micros(GRACE)


def delay_of(name: str, time: int, times: Recurrence) -> int:
    """Return the jitter of one nominal time, in microseconds: the same at every call."""
    most = span_micros(times.jitter)
    return 0 if most == 0 else int.from_bytes(_hash(name, time, "jitter")[:_SPREAD]) * most >> (8 * _SPREAD)


def tick_id(name: str, time: int) -> str:
    """Return the id of the job of a nominal time: a UUIDv7 of that time, its random bits a hash of both."""
    bits = int.from_bytes(_hash(name, time, "id")[:10])
    millisecond = max(time, 0) // 1000
    third, fourth = 0x7000 | bits >> 68, 0x8000 | (bits >> 54) & 0x3FFF
    high = f"{millisecond & (1 << 48) - 1:012x}"
    return f"{high[:8]}-{high[8:]}-{third:04x}-{fourth:04x}-{bits & (1 << 48) - 1:012x}"


def _hash(name: str, time: int, purpose: str) -> bytes:
    return hashlib.sha256(f"{purpose} {time} {name}".encode()).digest()
