"""The store's own verbs on real connections of PostgreSQL, each statement a step.

What stands above the verbs, `PostgresJobs`, is the real one; only its runner is ours. It ends each transaction in a
step of its own, as a caller's transaction does that enqueues or completes through `using=`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row
from tests.interleavings.orders import Footprint
from tests.interleavings.stepping import BrokenOffError, RolledBackError, Side

from holdfast.backends.postgres.error_map import is_conflict
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.jobs import PostgresJobs
from holdfast.backends.postgres.statements import TEMPLATES, Statements, transposed
from holdfast.backends.postgres.verbs.extend import extend_many
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.backends.sql.steps import Ask, Asked, Each, Together, run
from holdfast.model.job import Lease
from holdfast.store.claim_floor import Floors
from holdfast.store.jobs import JobStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import BecameReady, Steps
from holdfast.store.values import Extension, Finish, Verdict
from holdfast.store.verbs.finish import complete

T = TypeVar("T")

# `deadlock_timeout` of a side. PostgreSQL breaks off whichever side of a circle looks first, which would be a matter of
# chance. So only a side that begins to wait while another waits already looks at all: the last one of the circle.
FIRST_TO_WAIT = "1h"
LATER_TO_WAIT = "1ms"

_TABLE = re.compile(r"\{schema\}\.(\w+)")
_WRITTEN = re.compile(r"(?:insert into|delete from|update|copy) \{schema\}\.(\w+)")
_APPENDED_TO = re.compile(r"insert into \{schema\}\.tally\b")


@cache
def footprint(statement: str) -> Footprint:
    """Return the tables that a statement touches. Rows are only ever added to `tally`: nobody minds in which order."""
    text = _APPENDED_TO.sub("", re.sub(r"(?m)^--.*$", "", TEMPLATES[statement]))
    tables = frozenset(_TABLE.findall(text))
    locks = tables if re.search(r"\bfor (?:update|key share)\b", text) else frozenset(_WRITTEN.findall(text))
    return Footprint(reads=tables, locks=locks)


class SteppingRunner:
    """A `Runner` on one connection, whose statements wait for their side's turn."""

    joins = False  # in no handler's transaction

    def __init__(self, side: Side, connection: AsyncConnection[Any], statements: Statements) -> None:
        self._side = side
        self._connection = connection
        self._statements = statements
        self._is_joined = False
        self._deadlock_timeout = FIRST_TO_WAIT

    @property
    def is_alone(self) -> bool:
        return not self._is_joined

    async def once(self, verb: Callable[[], Steps[T]]) -> T:
        async with self._transaction():
            return await self._drive(verb())

    async def write(self, verb: Callable[[], Steps[T]]) -> T:
        async with self._transaction():
            return await self._drive(verb())

    async def look(self, verb: Callable[[], Steps[T]]) -> T:
        return await self._drive(verb())

    async def read(self, verb: Callable[[], Steps[T]]) -> T:
        return await self._drive(verb())

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
        if self._is_joined:
            yield
            return
        side = self._side
        try:
            await self._connection.execute(b"begin isolation level read committed")
            self._deadlock_timeout = FIRST_TO_WAIT
            yield
            ends = Footprint(ends=side.transaction.locks)
            word = "commit" if side.commits else "rollback"
            await side.step(word, ends, partial(self._connection.execute, word.encode()))
        except BaseException as error:
            await self._connection.execute(b"rollback")
            if isinstance(error, psycopg.Error) and is_conflict(error):
                raise BrokenOffError from error
            raise
        finally:
            side.transaction = Footprint()
        if not side.commits:
            raise RolledBackError

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            asked = next(steps)
            while True:
                asked = steps.send(await self._answer(asked))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    async def _answer(self, asked: Asked) -> list[Any]:
        if isinstance(asked, BecameReady):
            return []
        if isinstance(asked, Together):  # other clients' statements may run between them
            return [await self._answer(one) for one in asked.asks]
        if isinstance(asked, Each):
            asked = transposed(asked)
        assert isinstance(asked, Ask)
        record = asked.record or (lambda *columns: columns)
        touched = footprint(asked.statement)

        async def act() -> list[Any]:
            await self._choose_deadlock_timeout()
            async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                parameters = self._statements.parameters(asked.parameters)
                await cursor.execute(self._statements.text(asked.statement), parameters, binary=True)
                if cursor.rowcount:  # what found nothing holds nothing
                    self._side.transaction |= touched
                if not cursor.description:
                    return [()] * max(0, cursor.rowcount)
                return [record(*row) for row in await cursor.fetchall()]

        rows: list[Any] = await self._side.step(asked.statement, touched, act)
        return rows

    async def _choose_deadlock_timeout(self) -> None:
        others_wait = any(other.under_way for other in self._side.others if other is not self._side)
        timeout = LATER_TO_WAIT if others_wait else FIRST_TO_WAIT
        if timeout != self._deadlock_timeout:
            self._deadlock_timeout = timeout
            await self._connection.execute("select set_config('deadlock_timeout', %s, true)", [timeout])


class PostgresVerbs:
    """What the operations call, on one side."""

    def __init__(self, runner: SteppingRunner, whole: PostgresJobs) -> None:
        self._runner = runner
        jobs = PostgresJobs(
            runner,
            PostgresJobRows(),
            lanes=whole._lanes,
            floors=Floors(),
            blockers=whole._blockers,  # what it asks is no step: it is a transaction by itself
        )
        jobs._in_callers_transaction = False  # it commits at once, and may lock limit keys
        self.jobs: JobStore = jobs
        self.schedules: ScheduleStore = SchedulesOverRows(runner, SqlScheduleRows(), jobs.inserter, lambda: None)

    async def extend_many(self, held: Sequence[Lease], duration: timedelta) -> Extension:
        return await self._runner.once(lambda: extend_many(held, duration))

    async def complete_inside(self, lease: Lease) -> Verdict:
        """Complete as a handler's transaction does: the lease locked first."""

        def steps() -> Steps[Verdict]:
            if not (yield from run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=60_000)):
                return Verdict.LOST
            return (yield from complete(PostgresJobRows(), lease, None))

        return await self._runner.write(steps)

    async def batch_inside(self, finishes: Sequence[Finish]) -> dict[str, Verdict]:
        """End many jobs as the transaction of a batch does: all leases locked first, and the held ones ended."""
        verbs = fenced_verbs(PostgresJobRows())

        def steps() -> Steps[dict[str, Verdict]]:
            held = yield from verbs.lock_jobs([finish.lease for finish in finishes], 60_000)
            kept = [finish for finish in finishes if (finish.lease.seq, finish.lease.fence) in held]
            verdicts = (yield from verbs.finish(kept)) if kept else []
            return {finish.lease.job_id: verdict for finish, verdict in zip(kept, verdicts, strict=True)}

        return await self._runner.write(steps)

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        async with self._runner.together():
            yield
