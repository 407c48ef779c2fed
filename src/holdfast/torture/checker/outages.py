"""Times in which no recovery can be asked for, because nobody may have reached the store.

A fault says of itself that it *may* stall everybody: a SQLite process that is stopped in the middle of a write keeps
all others out, and one that is stopped anywhere else keeps out nobody. Which of the two it was, the history tells: if
any write of another was done meanwhile, the lock was free all the time, for whoever is stopped can neither take it nor
give it back. Without that look most of a run on SQLite would be an outage, and its bounds would bind little.

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

_SERVER_DOWN: Final = ("restart", "store")
_STOP: Final = "stop"
_PROMPT_US: Final = 100_000
"""A write that takes no longer than this shows that the store was free; they are counted by spans of this length."""
_SETTLING_US: Final = 200_000
"""For so long after a fault is written down its target may still be at work."""


class Outage(NamedTuple):
    """`is_total`: nor can a lease be extended, by anybody."""

    began_us: int
    ended_us: int
    is_total: bool


class Outages:
    """Gathered while the records are read; in order of their begin once all were."""

    def __init__(self) -> None:
        self._suspected: list[tuple[FaultBegan, int]] = []
        self._writes: set[int] = set()
        self._sure: list[Outage] = []

    def wrote(self, sent_us: int, at_us: int) -> None:
        """Note that somebody has written to the store."""
        if at_us - sent_us <= _PROMPT_US:
            self._writes.add(sent_us // _PROMPT_US)

    def suspect(self, fault: FaultBegan, ended_us: int) -> None:
        """Note a fault that may have kept everybody from the store."""
        if fault.stalls or fault.total:
            self._suspected.append((fault, ended_us))

    def close(self) -> None:
        """Note that all records were read."""
        self._sure = sorted(
            Outage(fault.at_us, ended_us, fault.total or (fault.fault, fault.target) == _SERVER_DOWN)
            for fault, ended_us in self._suspected
            if fault.total or fault.fault != _STOP or not self._anybody_wrote(fault.at_us, ended_us)
        )

    def _anybody_wrote(self, began_us: int, ended_us: int) -> bool:
        first = -(-(began_us + _SETTLING_US) // _PROMPT_US)  # the first span that lies wholly within
        last = ended_us // _PROMPT_US - 2  # a write of the last one may have taken as long as one more
        return any(span in self._writes for span in range(first, last + 1))

    def __iter__(self) -> Iterator[Outage]:
        """Go over all of them."""
        return iter(self._sure)

    def over(self, from_us: int, span_us: int, *, lease_us: int) -> int:
        """Return when a span of time is over that stands still in outages.

        Each costs a lease more: nobody takes leases who has not reached the store for half of one. But none costs more
        than to begin anew at its end.
        """
        deadline = from_us + span_us
        for outage in self._sure:
            if outage.began_us > deadline:
                break
            if outage.ended_us > from_us:
                anew = max(deadline, outage.ended_us + span_us)
                still = outage.ended_us - max(outage.began_us, from_us)
                deadline = min(anew, deadline + still + lease_us)
        return deadline
