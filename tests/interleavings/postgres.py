"""PostgreSQL as a place for the arena: a schema of its own, a connection for each side, and one to look on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, sql
from psycopg.rows import tuple_row
from tests.interleavings.arena import SIDES, Arena
from tests.interleavings.operations import Instant
from tests.interleavings.orders import Footprint
from tests.interleavings.runner import SteppedVerbs, SteppingRunner
from tests.interleavings.stepping import Side
from tests.interleavings.tables import TABLES, Rows

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.postgres.connecting import connect
from holdfast.backends.postgres.error_map import is_conflict
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.jobs import PostgresJobs
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.statements import TEMPLATES, Statements, transposed
from holdfast.backends.postgres.verbs.extend import extend_many
from holdfast.backends.postgres.verbs.lease_locks import lock_jobs
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.steps import Ask, Asked, Each, Together
from holdfast.store.claim_floor import Floors
from holdfast.store.steps import BecameReady
from holdfast.testing.stores import open_store

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


class PostgresRunner(SteppingRunner):
    """A runner on a connection of psycopg."""

    def __init__(self, side: Side, connection: AsyncConnection[Any], statements: Statements) -> None:
        super().__init__(side)
        self._connection = connection
        self._statements = statements
        self._deadlock_timeout = FIRST_TO_WAIT

    async def begin(self) -> None:
        await self._connection.execute(b"begin isolation level read committed")
        self._deadlock_timeout = FIRST_TO_WAIT

    async def execute(self, word: str) -> Any:
        await self._connection.execute(word.encode())

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error) and is_conflict(error)

    async def answer(self, asked: Asked) -> list[Any]:
        if isinstance(asked, BecameReady):
            return []
        if isinstance(asked, Together):  # other clients' statements may run between them
            return [await self.answer(one) for one in asked.asks]
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
                    self.holds(touched)
                if not cursor.description:
                    return [()] * max(0, cursor.rowcount)
                return [record(*row) for row in await cursor.fetchall()]

        rows: list[Any] = await self.step(asked.statement, touched, act)
        return rows

    async def _choose_deadlock_timeout(self) -> None:
        timeout = LATER_TO_WAIT if self.others_wait else FIRST_TO_WAIT
        if timeout != self._deadlock_timeout:
            self._deadlock_timeout = timeout
            await self._connection.execute("select set_config('deadlock_timeout', %s, true)", [timeout])


class PostgresTables:
    """The tables of one schema, through a connection of our own. Also tells who waits for whom."""

    def __init__(self, connection: AsyncConnection[Any], schema: str, backends: Sequence[int]) -> None:
        self._connection = connection
        self._schema = schema
        self._backends = list(backends)
        self._restore: dict[str, sql.Composed] = {}
        row = sql.SQL("{name}, (select coalesce(json_agg(row), '[]') from {table} as row)")
        rows = [row.format(name=sql.Literal(name), table=self._named(name)) for name in TABLES]
        self._read = sql.SQL("select json_build_object({})").format(sql.SQL(", ").join(rows))
        self._clear = [sql.SQL("delete from {}").format(self._named(name)) for name in TABLES]

    def _named(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)

    async def clear(self) -> None:
        """Empty all tables."""
        await self._connection.execute(sql.SQL("; ").join(self._clear))

    async def keep(self, state: str) -> None:
        """Remember what the tables hold now."""
        rows = await self.read()
        statements = [*self._clear]
        for name in filter(rows.__getitem__, TABLES):
            both = {"kept": self._named(f"kept {state} {name}"), "table": self._named(name)}
            await self._connection.execute(sql.SQL("create table {kept} as table {table}").format(**both))
            statements.append(sql.SQL("insert into {table} select * from {kept}").format(**both))
        for name in ("fence", "job_seq"):
            sequence = self._named(name)
            found = await self._connection.execute(sql.SQL("select last_value, is_called from {}").format(sequence))
            last, is_called = await found.fetchone() or (1, False)
            called = sql.Literal(sequence.as_string()), sql.Literal(last), sql.Literal(is_called)
            statements.append(sql.SQL("select setval({}, {}, {})").format(*called))
        self._restore[state] = sql.SQL("; ").join(statements)

    async def restore(self, state: str) -> None:
        """Put back what was remembered."""
        await self._connection.execute(self._restore[state])

    async def read(self) -> Rows:
        """Return all rows."""
        found = await (await self._connection.execute(self._read)).fetchone()
        assert found is not None
        rows: Rows = found[0]
        return rows

    async def blockers(self, sides: Sequence[int]) -> dict[int, set[int]]:
        """Return for each of these sides those whose locks it waits for."""
        found = await self._connection.execute(
            "select given, pg_blocking_pids(given) from unnest(%s::integer[]) as given",
            ([self._backends[side] for side in sides],),
        )
        number = {backend: side for side, backend in enumerate(self._backends)}
        return {number[pid]: {number[one] for one in before if one in number} for pid, before in await found.fetchall()}


@asynccontextmanager
async def open_postgres_arena(url: str) -> AsyncIterator[Arena]:
    """Open an arena in a schema that does not exist yet."""
    clock = Instant()
    location = PostgresLocation.parse(url)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_store(url, clock=clock))
        assert isinstance(backend, PostgresBackend)
        connections = []
        for _ in range(SIDES + 1):
            connection = await connect(location)
            stack.push_async_callback(connection.close)
            await connection.execute("set synchronous_commit = off")
            connections.append(connection)
        for connection in connections[:SIDES]:
            await connection.execute(f"set deadlock_timeout = '{FIRST_TO_WAIT}'".encode())
        pids = [connection.info.backend_pid for connection in connections[:SIDES]]
        whole, rows = backend.jobs, PostgresJobRows()
        assert isinstance(whole, PostgresJobs)

        def verbs(side: Side) -> SteppedVerbs:
            runner = PostgresRunner(side, connections[side.number], backend._statements)
            jobs = PostgresJobs(
                runner,
                rows,
                lanes=whole._lanes,
                floors=Floors(),
                blockers=whole._blockers,  # what it asks is no step: it is a transaction by itself
            )
            jobs._in_callers_transaction = False  # it commits at once, and may lock limit keys
            return SteppedVerbs(runner, jobs, fenced_verbs(rows)._replace(lock_jobs=lock_jobs), extend_many)

        yield await Arena.open(backend, clock, PostgresTables(connections[SIDES], location.schema, pids), verbs)
