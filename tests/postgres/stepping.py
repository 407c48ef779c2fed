"""Two verbs of streams on two connections, one of them stopped after any of its statements while the other runs.

What stands above the verbs is the real store; only its runner is ours. A deadlock is not repeated here, so it is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.postgres.statements import Statements, transposed
from holdfast.backends.postgres.streams import PostgresAllocations, PostgresEvents
from holdfast.backends.postgres.verbs.fetch import fetch
from holdfast.backends.sql.category_cache import Categories
from holdfast.backends.sql.steps import Ask, Each, Rows, Together
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.errors import HoldfastError
from holdfast.model.event import StoredEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import ParkedView
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import MANY

T = TypeVar("T")
_LOOK_AGAIN = 0.01
_TIMEOUT = 20.0
OWN_IDS = "01900000-"
TABLES = (
    "category",
    "head",
    "event",
    "trimmed_stream",
    "consumer",
    "allocation",
    "parked",
    "node",
    "transition",
    "leadership",
)


class Gate:
    """Lets through so many steps, then holds whoever comes until it is opened."""

    def __init__(self, steps: int | None = None) -> None:
        self._left = steps
        self._opened = asyncio.Event()
        self.reached = asyncio.Event()

    async def step(self) -> None:
        if self._left is None or self._opened.is_set():
            return
        if self._left > 0:
            self._left -= 1
            return
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()


class GatedRunner:
    """A runner on one connection: each statement is a step, and so is the end of a transaction."""

    joins = False  # in no handler's transaction

    def __init__(
        self, connection: AsyncConnection[Any], statements: Statements, gate: Gate, *, commits: bool = True
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._gate = gate
        self._ending = b"commit" if commits else b"rollback"

    async def write(self, verb: Callable[[], Steps[T]]) -> T:
        await self._connection.execute(b"begin isolation level read committed")
        try:
            result = await self._drive(verb())
            await self._gate.step()
            await self._connection.execute(self._ending)
        except BaseException:
            await self._connection.execute(b"rollback")
            raise
        return result

    once = at_once = look = read = write_briefly = write

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            asked = next(steps)
            while True:
                if isinstance(asked, Together):
                    asked = steps.send([await self._answer(ask) for ask in asked.asks])
                else:
                    assert isinstance(asked, Ask | Each)
                    asked = steps.send(await self._answer(asked))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    async def _answer(self, asked: Ask | Each) -> Rows:
        await self._gate.step()
        ask = transposed(asked) if isinstance(asked, Each) else asked
        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            parameters = self._statements.parameters(ask.parameters)
            await cursor.execute(self._statements.text(ask.statement), parameters, binary=True)
            rows = await cursor.fetchall() if cursor.description else [()] * cursor.rowcount
            return rows if ask.record is None else [ask.record(*row) for row in rows]


class Verbs:
    """The verbs of streams on one side."""

    def __init__(self, arena: Arena, connection: AsyncConnection[Any], gate: Gate, *, commits: bool = True) -> None:
        runner = GatedRunner(connection, arena.statements, gate, commits=commits)
        self.events = PostgresEvents(runner, categories=arena.categories, appended=lambda: None)
        self.consumers = SqlConsumers(runner, arena.backend._parts.here.transactions, fetch)
        self.allocations = PostgresAllocations(runner, arena.backend._parts.here.blockers)


Operation = Callable[[Verbs, Any], Awaitable[Any]]


class Arena:
    """A store, two connections to it, and what became of two operations."""

    def __init__(
        self, backend: PostgresBackend, url: str, clock: ManualClock, connections: list[AsyncConnection[Any]]
    ) -> None:
        self.backend = backend
        self.url = url
        self.statements = backend._statements
        self.clock = clock
        self._watch, *self._connections = connections
        self._began = clock()

    @property
    def categories(self) -> Categories:
        return Categories(self.backend._parts.here.runner)

    async def _anew(self, setup: Callable[[Arena], Awaitable[Any]]) -> Any:
        schema = self.statements.schema
        tables = ", ".join(f"{schema}.{table}" for table in TABLES)
        await self._watch.execute(f"truncate {tables} restart identity".encode())
        await self._watch.execute(f"insert into {schema}.leadership (epoch, until_at) values (0, 0)".encode())  # noqa: S608 - our own names
        self.clock.advance((self._began - self.clock()) / 1_000_000)
        return await setup(self)

    async def serially(self, setup: Any, *operations: Operation) -> tuple[Any, ...]:
        """Run operations one after the other; return their results and the state."""
        given = await self._anew(setup)
        results = [await _told(operation(Verbs(self, self._connections[0], Gate()), given)) for operation in operations]
        return (*results, await self._state())

    async def stopped(
        self, setup: Any, first: Operation, second: Operation, *, after: int, commits: bool = True
    ) -> tuple[Any, ...] | None:
        """Stop the first after so many steps, run the second, let the first go on; None if it has no so many steps."""
        given = await self._anew(setup)
        gate = Gate(after)
        held = asyncio.create_task(_told(first(Verbs(self, self._connections[0], gate, commits=commits), given)))
        reached = asyncio.create_task(gate.reached.wait())
        async with asyncio.timeout(_TIMEOUT):
            await asyncio.wait({held, reached}, return_when=asyncio.FIRST_COMPLETED)
            if held.done():
                reached.cancel()
                return None
            other = asyncio.create_task(_told(second(Verbs(self, self._connections[1], Gate()), given)))
            await self._ended_or_blocked(other)
            gate.open()
            return await held, await other, await self._state()

    async def _ended_or_blocked(self, other: asyncio.Task[Any]) -> None:
        """Wait until the second side has ended, or waits for a lock of the first."""
        pid = self._connections[1].info.backend_pid
        while True:
            await asyncio.wait({other}, timeout=_LOOK_AGAIN)
            if other.done():
                return
            cursor = await self._watch.execute("select cardinality(pg_blocking_pids(%s))", (pid,))
            row = await cursor.fetchone()
            if row and row[0]:
                return

    async def _state(self) -> Any:
        streams = self.backend.streams
        views = await streams.consumers.consumers()
        categories = await streams.events.categories()
        return (
            categories,
            [
                [_without_id(event) for event in await streams.events.read(each.name, number, after=0, limit=MANY)]
                for each in categories
                for number in range(each.partitions)
            ],
            views,
            [_without_id(each) for view in views for each in await streams.consumers.parked(view.name, limit=MANY)],
            await streams.allocations.survey(),
            await streams.allocations.leader(),
            set(await streams.allocations.transitions(limit=MANY)),
        )


def _without_id(seen: StoredEvent | ParkedView) -> StoredEvent | ParkedView:
    """What is made anew for each run has new ids; those of the tests' own events stay."""
    if isinstance(seen, ParkedView):
        return msgspec.structs.replace(seen, event_id="")
    return seen if seen.id.startswith(OWN_IDS) else msgspec.structs.replace(seen, id="")


async def _told(work: Awaitable[Any]) -> Any:
    """Return a result, or the refusal that stands for it. What the server breaks off is raised."""
    try:
        return await work
    except HoldfastError as refusal:
        return type(refusal).__name__, str(refusal)


@asynccontextmanager
async def open_arena(backend: PostgresBackend, url: str, clock: ManualClock) -> AsyncIterator[Arena]:
    connections = [await AsyncConnection[Any].connect(parts_of(url)[0], autocommit=True) for _ in range(3)]
    try:
        yield Arena(backend, url, clock, connections)
    finally:
        for connection in connections:
            await connection.close()
