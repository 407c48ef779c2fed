"""The store's own verbs on real connections, each statement a step.

What stands above the verbs, the jobs of a backend, is the real one; only its runner is ours. It ends each transaction
in a step of its own, as a caller's transaction does that enqueues or completes through `using=`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from tests.interleavings.orders import Footprint
from tests.interleavings.stepping import BrokenOffError, RolledBackError, Side

from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FencedVerbs
from holdfast.store.jobs import JobStore
from holdfast.store.jobs_over_rows import JobsOverRows
from holdfast.store.schedules import ScheduleStore
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Steps
from holdfast.store.values import Extension, Finish, Verdict

T = TypeVar("T")
ExtendMany = Callable[[Sequence[Lease], timedelta], Steps[Extension]]


class SteppingRunner(ABC):
    """A `Runner` on one connection, whose statements wait for their side's turn."""

    joins = False  # in no handler's transaction

    def __init__(self, side: Side) -> None:
        self._side = side
        self._is_joined = False

    @abstractmethod
    async def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    async def execute(self, word: str) -> Any:
        """Run a statement that ends the transaction."""

    @abstractmethod
    async def answer(self, asked: Any) -> Any:
        """Run what a verb asks for, each statement as a step."""

    @abstractmethod
    def is_conflict(self, error: BaseException) -> bool:
        """Return whether the store gave the transaction up in favour of another one, so that the verb is repeated."""

    def is_handled(self, error: BaseException) -> bool:
        """Return whether an error undoes its statement alone, so that the verb may handle it."""
        return False

    @property
    def is_alone(self) -> bool:
        return not self._is_joined

    async def write(self, verb: Callable[[], Steps[T]]) -> T:
        if self._is_joined:
            return await self._drive_until_no_duplicate(verb)
        while True:
            try:
                async with self._transaction():
                    return await self._drive(verb())
            except BrokenOffError:
                self._side.broken_off += 1

    once = write_briefly = write

    async def look(self, verb: Callable[[], Steps[T]]) -> T:
        return await self._drive(verb())

    read = look

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Let all verbs inside be of one transaction."""
        async with self._transaction():
            self._is_joined = True
            try:
                yield
            finally:
                self._is_joined = False

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        side = self._side
        try:
            await self.begin()
            yield
            ends = Footprint(ends=side.transaction.locks)
            word = "commit" if side.commits else "rollback"
            await side.step(word, ends, partial(self.execute, word))
        except BaseException as error:
            await self.execute("rollback")
            if self.is_conflict(error):
                raise BrokenOffError from error
            raise
        finally:
            side.transaction = Footprint()
        if not side.commits:
            raise RolledBackError

    async def _drive_until_no_duplicate(self, verb: Callable[[], Steps[T]]) -> T:
        while True:
            try:
                return await self._drive(verb())
            except Exception as error:
                if not self.is_handled(error):
                    raise

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            asked = next(steps)
            while True:
                try:
                    answer = await self.answer(asked)
                except Exception as error:
                    if not self.is_handled(error):
                        raise
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    def step(self, name: str, footprint: Footprint, act: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Take a step when it is this side's turn."""
        return self._side.step(name, footprint, act)

    def holds(self, footprint: Footprint) -> None:
        """Note what the transaction has touched."""
        self._side.transaction |= footprint

    @property
    def others_wait(self) -> bool:
        """Whether a statement of another side is under way."""
        return any(other.under_way for other in self._side.others if other is not self._side)


class SteppedVerbs:
    """What the operations call, on one side."""

    def __init__(
        self, runner: SteppingRunner, jobs: JobsOverRows, fenced: FencedVerbs, extend_many: ExtendMany
    ) -> None:
        self._runner = runner
        self._extend_many = extend_many
        self._fenced = fenced
        self.jobs: JobStore = jobs
        self.schedules: ScheduleStore = SchedulesOverRows(runner, SqlScheduleRows(), jobs.inserter, lambda: None)

    async def extend_many(self, held: Sequence[Lease], duration: timedelta) -> Extension:
        return await self._runner.write(lambda: self._extend_many(held, duration))

    async def complete_inside(self, lease: Lease) -> Verdict:
        """Complete as a handler's transaction does: the lease locked first."""

        def steps() -> Steps[Verdict]:
            if not (yield from self._fenced.lock_job(lease, 60_000)):
                return Verdict.LOST
            return (yield from self._fenced.complete(lease, None))

        return await self._runner.write(steps)

    async def batch_inside(self, finishes: Sequence[Finish]) -> dict[str, Verdict]:
        """End many jobs as the transaction of a batch does: all leases locked first, and the held ones ended."""

        def steps() -> Steps[dict[str, Verdict]]:
            held = yield from self._fenced.lock_jobs([finish.lease for finish in finishes], 60_000)
            kept = [finish for finish in finishes if (finish.lease.seq, finish.lease.fence) in held]
            verdicts = (yield from self._fenced.finish(kept)) if kept else []
            return {finish.lease.job_id: verdict for finish, verdict in zip(kept, verdicts, strict=True)}

        return await self._runner.write(steps)

    def together(self) -> AbstractAsyncContextManager[None]:
        return self._runner.together()
