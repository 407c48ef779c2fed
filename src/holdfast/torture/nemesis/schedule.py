"""The fault schedule: drawn from the seed, each kind until its count is reached."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from holdfast.errors import StoreError
from holdfast.torture.failure import FaultFailed, RunFailed
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.nemesis.broker import KillBroker, StopBroker
from holdfast.torture.nemesis.commit import CutAtCommit, CutAtStatement
from holdfast.torture.nemesis.cut import Cut
from holdfast.torture.nemesis.failpoint import Failpoint
from holdfast.torture.nemesis.kill import Kill
from holdfast.torture.nemesis.restart import KillServer, StopServer
from holdfast.torture.nemesis.skew import Skew
from holdfast.torture.nemesis.snapshot import HoldSnapshot
from holdfast.torture.nemesis.stop import Stop
from holdfast.torture.nemesis.term import Term
from holdfast.torture.nemesis.terminate import Terminate
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

INJECTORS: Final[tuple[FaultInjector, ...]] = (
    Kill(),
    Failpoint(),
    Stop(),
    Term(),
    Cut(),
    CutAtCommit(),
    CutAtStatement(),
    Terminate(),
    KillServer(),
    StopServer(),
    KillBroker(),
    StopBroker(),
    Skew(),
    HoldSnapshot(),
)
_FIRST, _LAST = 0.1, 0.95  # the part of the time in which faults are scheduled
_AGAIN = 0.3  # seconds after one without a target


class Nemesis:
    """Injects faults until every kind has reached its count."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self.refused: dict[Fault, str] = {}
        """The kinds that cannot be injected in this run, and why."""
        self.wanted: dict[Fault, int] = {}
        for injector in INJECTORS:
            count = run.plan.profile.faults.get(injector.kind, 0)
            why = injector.why_not(run)
            if why is not None:
                self.refused[injector.kind] = why
            elif count:
                self.wanted[injector.kind] = count

    @property
    def is_done(self) -> bool:
        """Whether all counts are reached."""
        return all(self._run.log.done[kind] >= count for kind, count in self.wanted.items())

    async def run(self) -> None:
        """Inject faults; returns when all counts are reached, and is cancelled when the time has passed."""
        try:
            async with asyncio.TaskGroup() as group:
                for injector in INJECTORS:
                    if injector.kind in self.wanted:
                        group.create_task(self._inject_all(injector, self.wanted[injector.kind]))
        except ExceptionGroup as errors:
            failed = errors.subgroup(RunFailed)
            if failed is None:
                raise
            raise _first(failed)  # noqa: B904 - it has its own cause

    async def _inject_all(self, injector: FaultInjector, count: int) -> None:
        plan, log = self._run.plan, self._run.log
        chance = plan.chance("nemesis", injector.kind)
        whens = sorted(plan.profile.seconds * chance.uniform(_FIRST, _LAST) for _ in range(count))
        clock = asyncio.get_running_loop().time
        began = clock()
        slots = asyncio.Semaphore(injector.at_once)
        async with asyncio.TaskGroup() as group:
            for when in whens:
                await asyncio.sleep(max(0.0, began + when - clock()))  # the schedule
                await slots.acquire()
                group.create_task(self._until_injected(injector, random.Random(chance.random()), slots))  # noqa: S311
        log.show(f"{injector.kind}: all {count} done")

    async def _until_injected(self, injector: FaultInjector, chance: random.Random, slots: asyncio.Semaphore) -> None:
        try:
            while not await injector.inject(self._run, chance):  # noqa: ASYNC110 - no event announces a new target
                await asyncio.sleep(_AGAIN)
            self._run.log.count(injector.kind)
        except (TimeoutError, StoreError, OSError) as error:
            raise FaultFailed(f"could not inject the fault {injector.kind}: {_message(error)}") from error
        finally:
            slots.release()


def _message(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "its target did not exit in time"
    return str(error) or type(error).__name__


def _first(errors: BaseExceptionGroup[RunFailed]) -> RunFailed:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
