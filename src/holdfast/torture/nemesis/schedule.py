"""The fault schedule: drawn from the seed, each kind until its count is reached."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from holdfast.errors import StoreError
from holdfast.torture.failure import FaultFailed, RunFailed
from holdfast.torture.nemesis.base import Striker
from holdfast.torture.nemesis.commit import CutAtCommit
from holdfast.torture.nemesis.cut import Cut
from holdfast.torture.nemesis.failpoint import Failpoint
from holdfast.torture.nemesis.kill import Kill
from holdfast.torture.nemesis.restart import RestartServer
from holdfast.torture.nemesis.skew import Skew
from holdfast.torture.nemesis.snapshot import HoldSnapshot
from holdfast.torture.nemesis.statement import Statement
from holdfast.torture.nemesis.stop import Stop
from holdfast.torture.nemesis.term import Term
from holdfast.torture.nemesis.terminate import Terminate
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

STRIKERS: Final[tuple[Striker, ...]] = (
    Kill(),
    Failpoint(),
    Stop(),
    Term(),
    Cut(),
    CutAtCommit(),
    Statement(),
    Terminate(),
    RestartServer(),
    Skew(),
    HoldSnapshot(),
)
_FIRST, _LAST = 0.1, 0.95  # the part of the time in which faults are scheduled
_AGAIN = 0.3  # seconds after one without a target


class Nemesis:
    """Injects faults until every kind has reached its count."""

    def __init__(self, stage: RunContext) -> None:
        self._stage = stage
        self.refused: dict[Fault, str] = {}
        """The kinds that cannot be injected in this run, and why."""
        self.wanted: dict[Fault, int] = {}
        for striker in STRIKERS:
            count = stage.plan.profile.faults.get(striker.kind, 0)
            why = striker.why_not(stage)
            if why is not None:
                self.refused[striker.kind] = why
            elif count:
                self.wanted[striker.kind] = count

    @property
    def is_done(self) -> bool:
        """Whether all counts are reached."""
        return all(self._stage.log.done[kind] >= count for kind, count in self.wanted.items())

    async def run(self) -> None:
        """Inject faults; returns when all counts are reached, and is cancelled when the time is over."""
        try:
            async with asyncio.TaskGroup() as group:
                for striker in STRIKERS:
                    if striker.kind in self.wanted:
                        group.create_task(self._strike_all(striker, self.wanted[striker.kind]))
        except ExceptionGroup as errors:
            failed = errors.subgroup(RunFailed)
            if failed is None:
                raise
            raise _first(failed)  # noqa: B904 - it has its own cause

    async def _strike_all(self, striker: Striker, count: int) -> None:
        plan, log = self._stage.plan, self._stage.log
        chance = plan.chance("nemesis", striker.kind)
        whens = sorted(plan.profile.seconds * chance.uniform(_FIRST, _LAST) for _ in range(count))
        clock = asyncio.get_running_loop().time
        began = clock()
        slots = asyncio.Semaphore(striker.at_once)
        async with asyncio.TaskGroup() as group:
            for when in whens:
                await asyncio.sleep(max(0.0, began + when - clock()))  # the schedule
                await slots.acquire()
                group.create_task(self._until_hit(striker, random.Random(chance.random()), slots))  # noqa: S311
        log.told(f"{striker.kind}: all {count} done")

    async def _until_hit(self, striker: Striker, chance: random.Random, slots: asyncio.Semaphore) -> None:
        try:
            while not await striker.strike(self._stage, chance):  # noqa: ASYNC110 - no event announces a new target
                await asyncio.sleep(_AGAIN)
            self._stage.log.count(striker.kind)
        except (TimeoutError, StoreError, OSError) as error:
            raise FaultFailed(f"could not inject the fault {striker.kind}: {_words(error)}") from error
        finally:
            slots.release()


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "its target did not exit in time"
    return str(error) or type(error).__name__


def _first(errors: BaseExceptionGroup[RunFailed]) -> RunFailed:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
