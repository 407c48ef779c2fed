"""How many jobs per minute, from the counters of the last minutes."""

from __future__ import annotations

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


class QueueRate(msgspec.Struct, frozen=True):
    """The jobs of a queue per minute."""

    enqueued: float = 0.0
    completed: float = 0.0
    failed: float = 0.0

    def fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {f"{name}_per_minute": round(rate, 2) for name, rate in msgspec.structs.asdict(self).items()}


def rates_of(counts: Iterable[Count], at: datetime) -> dict[str, QueueRate]:
    """Return the rate of each queue over `WINDOW` before an instant; the window begins with a whole minute."""
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


def completed_of(sums: Iterable[Count]) -> dict[str, int]:
    """Return how many jobs of each queue were completed."""
    totals: dict[str, int] = {}
    for count in sums:
        totals[count.queue] = totals.get(count.queue, 0) + count.completed
    return totals


def shown_rate(rate: float) -> str | None:
    """Return a rate for a table; None for none at all."""
    if not rate:
        return None
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"  # noqa: PLR2004 - below, a digit after the point matters
