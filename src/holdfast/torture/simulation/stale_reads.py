"""Past states of the store, from which stale reads are answered.

After every step that changes what a read can show, the few fields that reads use are kept, for all jobs, with what the
judge knew then. That is one tuple of references per job; a model is only built for a stale read.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from holdfast.testing.reference import Reference
from holdfast.testing.reference.records import ReferenceJob
from holdfast.torture.simulation.clock import StoreClock
from holdfast.torture.simulation.oracle import Case, Docket
from holdfast.torture.simulation.world import SimulatedWorld

_RECORD = attrgetter("new", "seq", "state", "place", "lease", "retrying", "cancel_reason", "completed_by")
_CASE = attrgetter("new", "due", "place", "state", "fence", "claims")
# A lease is shared, not copied: its fence and worker never change, and no read shows the rest of it.

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    ahead: int
    """By how much the store's clock was ahead of true time."""
    paused: frozenset[str]
    records: tuple[Row, ...]
    cases: tuple[Row, ...]


class Past:
    """All past states of the store; it keeps only what may be read."""

    def __init__(
        self,
        world: SimulatedWorld,
        model: Reference,
        docket: Docket,
        clock: StoreClock,
        *,
        keeps: bool,
        keeps_cases: bool,
    ) -> None:
        self._world = world
        self._model = model
        self._docket = docket
        self._clock = clock
        self._keeps = keeps
        self._keeps_cases = keeps_cases
        self._since: list[int] = []
        self._kept: list[_Kept] = []
        self.keep()

    def keep(self) -> None:
        """Record the current state of the store."""
        if not self._keeps:
            return
        now, model = self._world.now, self._model
        if self._since and self._since[-1] == now:
            self._since.pop()
            self._kept.pop()
        self._since.append(now)
        self._kept.append(
            _Kept(
                self._clock() - now,
                frozenset(model.paused),
                tuple(map(_RECORD, model.records.values())),
                tuple(map(_CASE, self._docket.cases.values())) if self._keeps_cases else (),
            )
        )

    def model(self, at: int) -> Reference:
        """Return the model as it was at a time; only for reads."""
        if at >= self._world.now:
            return self._model
        kept = self._at(at)
        then = Reference(lambda: at + kept.ahead)
        then.paused = set(kept.paused)
        for new, seq, state, place, lease, retrying, cancel_reason, completed_by in kept.records:
            then.records[new.id] = ReferenceJob(
                new=new,
                size=0,
                seq=seq,
                state=state,
                enqueued_us=0,
                run_us=0,
                turn_us=0,
                place=place,
                lease=lease,
                retrying=retrying,
                cancel_reason=cancel_reason,
                completed_by=completed_by,
            )
        return then

    def docket(self, at: int) -> Docket:
        """Return what the judge knew at a time."""
        if at >= self._world.now:
            return self._docket
        kept = self._at(at)
        then = Docket(lambda: at + kept.ahead)
        then.paused = set(kept.paused)
        for new, due, place, state, fence, claims in kept.cases:
            then.cases[new.id] = Case(new, due, place, state=state, fence=fence, claims=claims)
        return then

    def _at(self, at: int) -> _Kept:
        return self._kept[max(bisect_right(self._since, at) - 1, 0)]
