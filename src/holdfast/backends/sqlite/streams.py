"""The port's verbs for streams, on SQLite: each one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.handler_transaction import SqliteAsyncTransaction, SqliteBlockingTransaction
from holdfast.backends.sqlite.transactions import SqliteTransactions
from holdfast.backends.sqlite.verbs import allot as allotting
from holdfast.backends.sqlite.verbs import consumer_desk as desk
from holdfast.backends.sqlite.verbs import consumers, events, nodes, parking, trimming
from holdfast.backends.sqlite.verbs.transitions import transitions
from holdfast.model.allocation import Grant, Leadership, Move, NodeKey, Share, Timing
from holdfast.model.event import Appended, NewEvent, StoredEvent
from holdfast.store.steps import Runner
from holdfast.store.stream_values import (
    Beat,
    CategoryView,
    Commit,
    CommitVerdict,
    ConsumerView,
    Fetched,
    LeaderView,
    NewNode,
    NodeView,
    ParkedView,
    Start,
    Subscription,
    Survey,
    Transition,
)


class SqliteEvents:
    """`EventStore` on SQLite."""

    def __init__(self, runner: Runner, notify: Callable[[], None]) -> None:
        self._runner = runner
        self._notify = notify

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:  # noqa: D102 - see the port
        return await self._runner.write(direct(lambda tx: events.open_category(tx, name, partitions)))

    async def categories(self) -> list[CategoryView]:  # noqa: D102
        return await self._runner.read(direct(events.categories))

    async def append(self, new: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102
        appended = await self._runner.write(direct(lambda tx: events.append(tx, new)))
        self._notify()
        return appended

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:  # noqa: D102
        return await self._runner.read(
            direct(lambda tx: events.read(tx, category, partition_id, after=after, limit=limit))
        )

    async def read_stream(  # noqa: D102
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        return await self._runner.read(
            direct(lambda tx: events.read_stream(tx, category, stream, after=after, limit=limit, backwards=backwards))
        )

    async def stream_version(self, category: str, stream: str) -> int:  # noqa: D102
        def look(tx: Tx) -> int:
            found = events.find_category(tx, category)
            return 0 if found is None else events.stream_version(tx, found.category_id, stream)

        return await self._runner.read(direct(look))

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:  # noqa: D102
        return await self._runner.read(direct(lambda tx: events.position_at(tx, category, partition_id, at)))

    async def trim(  # noqa: D102
        self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False
    ) -> int:
        return await self._runner.write(
            direct(lambda tx: trimming.trim(tx, category, older_than=older_than, limit=limit, past_unread=past_unread))
        )


class SqliteConsumers:
    """`ConsumerStore` on SQLite."""

    def __init__(self, runner: Runner, transactions: SqliteTransactions) -> None:
        self._runner = runner
        self._transactions = transactions

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: consumers.subscribe(tx, consumer, subscription, start)))

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        return await self._runner.read(
            direct(lambda tx: consumers.fetch(tx, grant, after=after, limit=limit, max_bytes=max_bytes))
        )

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:  # noqa: D102
        return await self._runner.write(direct(lambda tx: consumers.commit(tx, grant, commit)))

    async def verify(self, grant: Grant) -> int | None:  # noqa: D102
        return await self._runner.write(direct(lambda tx: consumers.verify(tx, grant)))

    async def release(self, grant: Grant) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: consumers.release(tx, grant)))

    def begin(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[SqliteAsyncTransaction]:  # noqa: D102
        return self._transactions.begin_stream(grant, limit=limit)

    def begin_blocking(  # noqa: D102
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[SqliteBlockingTransaction]:
        return self._transactions.begin_stream_blocking(grant, limit=limit)

    async def consumers(self) -> list[ConsumerView]:  # noqa: D102
        return await self._runner.read(direct(desk.consumers))

    async def pause(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: desk.pause(tx, consumer)))

    async def resume(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: desk.resume(tx, consumer)))

    async def reset(self, consumer: str, to: Start) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: desk.reset(tx, consumer, to)))

    async def forget(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: desk.forget(tx, consumer)))

    async def parked(  # noqa: D102
        self, consumer: str, *, after: ParkedView | None = None, limit: int
    ) -> list[ParkedView]:
        def look(tx: Tx) -> list[ParkedView]:
            consumers.require_consumer(tx, consumer)
            return parking.parked(tx, consumer, after, limit)

        return await self._runner.read(direct(look))

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:  # noqa: D102
        return await self._runner.write(direct(lambda tx: desk.retry_parked(tx, consumer, stream)))

    async def drop_parked(  # noqa: D102
        self, consumer: str, *, stream: str | None = None, event_id: str | None = None
    ) -> int:
        return await self._runner.write(direct(lambda tx: desk.drop_parked(tx, consumer, stream, event_id)))

    async def position_of(self, share: Share, at: datetime) -> int:  # noqa: D102
        def look(tx: Tx) -> int:
            stream = consumers.require_consumer(tx, share.consumer).stream
            return consumers.position_of(tx, share, stream, at)

        return await self._runner.read(direct(look))


class SqliteAllocations:
    """`AllocationStore` on SQLite.

    Both runners go before other writers, but a report waits not even for the leader's verbs: while those stood first at
    the gate, it would stand behind them in their thread, and be passed by the next transaction of a handler.
    """

    def __init__(self, *, reports: Runner, leading: Runner) -> None:
        self._reports = reports
        self._runner = leading

    async def join(self, node: NewNode) -> None:  # noqa: D102
        await self._runner.write(direct(lambda tx: nodes.join(tx, node)))

    async def beat(self, node: NodeKey, timing: Timing) -> Beat:  # noqa: D102
        sent = time.monotonic()

        def report(tx: Tx) -> Beat:
            waited = timedelta(seconds=time.monotonic() - sent)
            return msgspec.structs.replace(nodes.beat(tx, node, timing), waited=waited)

        return await self._reports.write(direct(report))

    async def owned(self, node: NodeKey) -> Beat:  # noqa: D102
        return await self._runner.read(direct(lambda tx: nodes.owned(tx, node)))

    async def leave(self, node: NodeKey) -> None:  # noqa: D102
        await self._runner.write(direct(lambda tx: nodes.leave(tx, node)))

    async def drain(self, node: NodeKey) -> None:  # noqa: D102
        await self._runner.write(direct(lambda tx: nodes.drain(tx, node)))

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:  # noqa: D102
        return await self._runner.write(direct(lambda tx: nodes.lead(tx, node, lease)))

    async def resign(self, leadership: Leadership) -> bool:  # noqa: D102
        return await self._runner.write(direct(lambda tx: nodes.resign(tx, leadership)))

    async def survey(self) -> Survey:  # noqa: D102
        return await self._runner.read(direct(allotting.survey))

    async def allot(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        return await self._runner.write(direct(lambda tx: allotting.allot(tx, leadership, moves, grace)))

    async def complete_shares(self, leadership: Leadership) -> int | None:  # noqa: D102
        return await self._runner.write(direct(lambda tx: allotting.complete_shares(tx, leadership)))

    async def leader(self) -> LeaderView | None:  # noqa: D102
        return await self._runner.read(direct(nodes.leader))

    async def nodes(self) -> list[NodeView]:  # noqa: D102
        return await self._runner.read(direct(nodes.nodes))

    async def transitions(self, *, limit: int) -> list[Transition]:  # noqa: D102
        return await self._runner.read(direct(lambda tx: transitions(tx, limit)))


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
