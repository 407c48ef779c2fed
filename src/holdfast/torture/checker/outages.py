"""Times in which no recovery can be required, because no worker may have reached the store.

A fault only states that it *may* stall every process: a SQLite process stopped in the middle of a write blocks all
others, one stopped anywhere else blocks none. The history shows which it was: if any other process completed a write in
the meantime, the lock was free all the time, because a stopped process can neither take nor release it. Without this
check most of a run on SQLite would count as an outage, and the bounds would hardly constrain anything.

```text
   fault           |-------- stopped --------|
   others' writes      x          x     x          -> no outage
   fault           |-------- stopped --------|
   others' writes                               x  -> an outage
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.torture.events import FaultBegan

_SERVER_DOWN: Final = {("restart", "store"), ("server_stop", "store")}
_STOP: Final = "stop"
_PROMPT_US: Final = 100_000
"""A write no longer than this shows that the store was not locked; writes are counted per span of this length."""
_SETTLING_US: Final = 200_000
"""For this long after a fault is recorded its target may still be running."""


class Outage(NamedTuple):
    """`is_total`: no worker can extend a lease either."""

    began_us: int
    ended_us: int
    is_total: bool


class Outages:
    """Collected while the records are read; sorted by start once all are read."""

    def __init__(self) -> None:
        self._suspected: list[tuple[FaultBegan, int]] = []
        self._writes: set[int] = set()
        self._sure: list[Outage] = []

    def wrote(self, sent_us: int, at_us: int) -> None:
        """Record a completed write to the store."""
        if at_us - sent_us <= _PROMPT_US:
            self._writes.add(sent_us // _PROMPT_US)

    def suspect(self, fault: FaultBegan, ended_us: int) -> None:
        """Record a fault that may have kept every process from the store."""
        if fault.stalls or fault.total:
            self._suspected.append((fault, ended_us))

    def close(self) -> None:
        """Record that all records were read."""
        self._sure = sorted(
            Outage(fault.at_us, ended_us, fault.total or (fault.fault, fault.target) in _SERVER_DOWN)
            for fault, ended_us in self._suspected
            if fault.total or fault.fault != _STOP or not self._any_write(fault.at_us, ended_us)
        )

    def _any_write(self, began_us: int, ended_us: int) -> bool:
        first = -(-(began_us + _SETTLING_US) // _PROMPT_US)  # the first span that lies completely inside
        last = ended_us // _PROMPT_US - 2  # a write in the last one may extend into the next
        return any(span in self._writes for span in range(first, last + 1))

    def __iter__(self) -> Iterator[Outage]:
        """Iterate over all outages."""
        return iter(self._sure)

    def over(self, from_us: int, span_us: int, *, lease_us: int) -> int:
        """Return when a duration has elapsed, not counting outages.

        Each outage adds a lease: a rescuer acts only after half a lease of uninterrupted access. But no outage adds
        more than restarting the duration at its end.
        """
        deadline = from_us + span_us
        for outage in self._sure:
            if outage.began_us > deadline:
                break
            if outage.ended_us > from_us:
                restarted = max(deadline, outage.ended_us + span_us)
                still = outage.ended_us - max(outage.began_us, from_us)
                deadline = min(restarted, deadline + still + lease_us)
        return deadline
