"""How many jobs per minute, from the counters of the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.model.duration import LONGEST
from holdfast.store.values import Count

WINDOW = timedelta(minutes=5)
EVER = LONGEST
"""A time that covers all counters that are kept."""

_MINUTE = timedelta(minutes=1)
_RECENT = timedelta(seconds=10)
_RATED = ("enqueued", "completed", "failed")


class QueueRate(msgspec.Struct, frozen=True):
    """The jobs of a queue per minute, or their number."""

    enqueued: float = 0.0
    completed: float = 0.0
    failed: float = 0.0

    def fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {f"{name}_per_minute": round(rate, 2) for name, rate in msgspec.structs.asdict(self).items()}


def rates_of(counts: Iterable[Count], at: datetime) -> dict[str, QueueRate]:
    """Return the mean rate of each queue over `WINDOW` before an instant; the window begins with a whole minute."""
    elapsed = (at - (at - WINDOW + _MINUTE).replace(second=0, microsecond=0)) / _MINUTE
    rates: dict[str, QueueRate] = {}
    for count in counts:
        known = rates.get(count.queue, QueueRate())
        rates[count.queue] = QueueRate(
            known.enqueued + count.enqueued / elapsed,
            known.completed + count.completed / elapsed,
            known.failed + count.failed / elapsed,
        )
    return rates


def sums_of(counts: Iterable[Count]) -> dict[str, QueueRate]:
    """Return how many jobs of each queue the counters have counted."""
    sums: dict[str, QueueRate] = {}
    for count in counts:
        known = sums.get(count.queue, QueueRate())
        sums[count.queue] = QueueRate(
            known.enqueued + count.enqueued, known.completed + count.completed, known.failed + count.failed
        )
    return sums


class RateMeter:
    """Rates over the last seconds, from the counters that successive frames have read."""

    def __init__(self) -> None:
        self._known: dict[tuple[datetime, str, str], Count] | None = None
        self._sums: dict[str, list[int]] = {}
        self._points: deque[tuple[datetime, dict[str, list[int]]]] = deque()

    def add(self, counts: Iterable[Count], at: datetime) -> dict[str, QueueRate] | None:
        """Add the counters of a frame; return the rates, or None for lack of an earlier frame."""
        found = {(count.minute_at, count.queue, count.task): count for count in counts}
        known = found if self._known is None else self._known
        for key, count in found.items():
            before = known.get(key)
            sums = self._sums.setdefault(count.queue, [0, 0, 0])
            for index, name in enumerate(_RATED):
                sums[index] += getattr(count, name) - (getattr(before, name) if before else 0)
        self._known = found
        self._points.append((at, {queue: list(sums) for queue, sums in self._sums.items()}))
        while len(self._points) > 2 and at - self._points[1][0] >= _RECENT:  # noqa: PLR2004 - a rate needs two points
            self._points.popleft()
        first_at, first = self._points[0]
        elapsed = (at - first_at) / _MINUTE
        if elapsed <= 0:
            return None
        rates: dict[str, QueueRate] = {}
        for queue, sums in self._sums.items():
            earlier = first.get(queue, [0, 0, 0])
            rates[queue] = QueueRate(*((now - then) / elapsed for now, then in zip(sums, earlier, strict=True)))
        return rates


def completed_of(sums: Iterable[Count]) -> dict[str, int]:
    """Return how many jobs of each queue were completed."""
    totals: dict[str, int] = {}
    for count in sums:
        totals[count.queue] = totals.get(count.queue, 0) + count.completed
    return totals


def shown_rate(rate: float) -> str | None:
    """Return a rate or a number for a table; None for none at all."""
    if not rate:
        return None
    is_rounded = rate >= 10 or rate == int(rate)  # noqa: PLR2004 - below, a digit after the point matters
    return f"{rate:,.0f}" if is_rounded else f"{rate:.1f}"
