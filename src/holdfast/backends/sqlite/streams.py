"""The port's verbs for streams on SQLite, one transaction each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sql.streams import nodes
from holdfast.backends.sql.streams.allocation_store import SqlAllocations
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.backends.sql.streams.event_store import SqlEvents
from holdfast.backends.sqlite.transactions import SqliteTransactions
from holdfast.backends.sqlite.verbs.append import append
from holdfast.backends.sqlite.verbs.fetch import fetch
from holdfast.model.allocation import Grant, NodeKey, Timing
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import Runner, Steps
from holdfast.store.stream_values import Fetched, OwnedShares


class SqliteEvents(SqlEvents):
    """`EventStore` on SQLite."""

    def __init__(self, runner: Runner, notify: Callable[[], None]) -> None:
        super().__init__(runner)
        self._notify = notify

    async def append(self, new: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102 - the port states the contracts
        appended = await self._runner.write(lambda: append(new))
        self._notify()
        return appended


class SqliteConsumers(SqlConsumers):
    """`ConsumerStore` on SQLite."""

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        return await self._runner.read(lambda: fetch(grant, after=after, limit=limit, max_bytes=max_bytes))


class SqliteAllocations(SqlAllocations):
    """`AllocationStore` on SQLite.

    Both runners go before other writers, each with its own thread: in a shared thread a heartbeat would wait behind the
    leader's verbs while the next handler's transaction takes the write lock.
    """

    def __init__(self, *, heartbeats: Runner, leading: Runner) -> None:
        super().__init__(leading)
        self._heartbeats = heartbeats

    async def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        sent = time.monotonic()

        def record() -> Steps[OwnedShares]:
            waited = timedelta(seconds=time.monotonic() - sent)  # until the transaction has begun
            answer = yield from nodes.heartbeat(node, timing)
            return msgspec.structs.replace(answer, waited=waited)

        return await self._heartbeats.write(record)


class SqliteStreams:
    """`Streams` on SQLite."""

    def __init__(
        self,
        runner: Runner,
        transactions: SqliteTransactions,
        notify: Callable[[], None],
        allocations: SqliteAllocations,
        callers: Callable[[object], Runner],
    ) -> None:
        self.events = SqliteEvents(runner, notify)
        self.consumers = SqliteConsumers(runner, transactions)
        self.allocations = allocations
        self._callers = callers
        self._notify = notify

    def join(self, using: object) -> SqliteEvents:  # noqa: D102
        return SqliteEvents(self._callers(using), self._notify)
