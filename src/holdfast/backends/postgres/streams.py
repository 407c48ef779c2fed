"""The port's verbs for streams, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta

import psycopg

from holdfast.backends.postgres.blockers import Blockers, waited_in_vain
from holdfast.backends.postgres.category_cache import Categories
from holdfast.backends.postgres.handler_transaction import PostgresAsyncTransaction, PostgresBlockingTransaction
from holdfast.backends.postgres.runners import PoolRunner, SwiftRunner
from holdfast.backends.postgres.transactions import PostgresTransactions
from holdfast.backends.postgres.verbs import allot as allotting
from holdfast.backends.postgres.verbs import append as appending
from holdfast.backends.postgres.verbs import consumer_desk as desk
from holdfast.backends.postgres.verbs import consumers, events, nodes, parking, trimming
from holdfast.backends.postgres.verbs.transitions import transitions
from holdfast.errors import StoreUnavailable
from holdfast.model.allocation import Grant, Leadership, Move, NodeKey, Seize, Share, Timing
from holdfast.model.event import Appended, NewEvent, StoredEvent
from holdfast.store.steps import Steps
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

COPY_FROM = 150  # so many events, and COPY pays for its further round trips
_TRIES = 3


class PostgresEvents:
    """`EventStore` on PostgreSQL. `appended` is called when events were written, in a transaction or by themselves."""

    def __init__(self, runner: SwiftRunner, *, categories: Categories, appended: Callable[[], None]) -> None:
        self._runner = runner
        self._categories = categories
        self._appended = appended

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:  # noqa: D102 - see the port
        return await self._runner.write(lambda: events.open_category(name, partitions))

    async def categories(self) -> list[CategoryView]:  # noqa: D102
        return await self._runner.look(events.categories)

    async def append(self, new: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102
        if not new:
            return []
        for number in range(1, _TRIES + 1):
            try:
                appended = await self._append(new)
            except psycopg.errors.UniqueViolation as error:
                # Somebody has appended one of these ids to another partition meanwhile: it is known now.
                if number == _TRIES or not self._is_alone:
                    message = "an event of the same id was appended meanwhile, to another partition: append again"
                    raise StoreUnavailable(message) from error
            else:
                self._appended()
                return appended
        raise AssertionError

    async def _append(self, new: Sequence[NewEvent]) -> list[Appended]:
        needed = {event.category for event in new}
        categories = await self._categories.of(needed)
        if not needed <= categories.keys():
            return await self._runner.write(lambda: appending.append_anew(new, categories))
        if self._is_alone and len(new) >= COPY_FROM:
            return await self._runner.write(lambda: appending.copy(new, categories))
        return await self._runner.at_once(lambda: appending.append(new, categories))

    @property
    def _is_alone(self) -> bool:
        """Whether an append is a transaction of its own."""
        return isinstance(self._runner, PoolRunner) and not self._runner.joins

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:  # noqa: D102
        return await self._runner.look(lambda: events.read(category, partition_id, after=after, limit=limit))

    async def read_stream(  # noqa: D102
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        return await self._runner.look(
            lambda: events.read_stream(category, stream, after=after, limit=limit, backwards=backwards)
        )

    async def stream_version(self, category: str, stream: str) -> int:  # noqa: D102
        return await self._runner.look(lambda: events.stream_version(category, stream))

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:  # noqa: D102
        return await self._runner.look(lambda: events.position_at(category, partition_id, at))

    async def trim(  # noqa: D102
        self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False
    ) -> int:
        return await self._runner.write(
            lambda: trimming.trim(category, older_than=older_than, limit=limit, past_unread=past_unread)
        )


class PostgresConsumers:
    """`ConsumerStore` on PostgreSQL."""

    def __init__(self, runner: SwiftRunner, transactions: PostgresTransactions) -> None:
        self._runner = runner
        self._transactions = transactions

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumers.subscribe(consumer, subscription, start))

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        return await self._runner.look(lambda: consumers.fetch(grant, after=after, limit=limit, max_bytes=max_bytes))

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:  # noqa: D102
        run = self._runner.write if commit.parks or commit.unparks else self._runner.once
        return await run(lambda: consumers.commit(grant, commit))

    async def verify(self, grant: Grant) -> int | None:  # noqa: D102
        return await self._runner.once(lambda: consumers.verify(grant))

    async def release(self, grant: Grant) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumers.release(grant))

    def begin(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[PostgresAsyncTransaction]:  # noqa: D102
        return self._transactions.begin_stream(grant, limit=limit)

    def begin_blocking(  # noqa: D102
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[PostgresBlockingTransaction]:
        return self._transactions.begin_stream_blocking(grant, limit=limit)

    async def consumers(self) -> list[ConsumerView]:  # noqa: D102
        return await self._runner.look(desk.consumers)

    async def pause(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: desk.pause(consumer))

    async def resume(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: desk.resume(consumer))

    async def reset(self, consumer: str, to: Start) -> bool:  # noqa: D102
        return await self._runner.write(lambda: desk.reset(consumer, to))

    async def forget(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: desk.forget(consumer))

    async def parked(  # noqa: D102
        self, consumer: str, *, after: ParkedView | None = None, limit: int
    ) -> list[ParkedView]:
        def look() -> Steps[list[ParkedView]]:
            yield from consumers.require_consumer(consumer)
            return (yield from parking.parked(consumer, after, limit))

        return await self._runner.look(look)

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:  # noqa: D102
        return await self._runner.write(lambda: desk.retry_parked(consumer, stream))

    async def drop_parked(  # noqa: D102
        self, consumer: str, *, stream: str | None = None, event_id: str | None = None
    ) -> int:
        return await self._runner.write(lambda: desk.drop_parked(consumer, stream, event_id))

    async def position_of(self, share: Share, at: datetime) -> int:  # noqa: D102
        return await self._runner.look(lambda: consumers.position_of(share, at))


class PostgresAllocations:
    """`AllocationStore` on PostgreSQL."""

    def __init__(self, runner: SwiftRunner, blockers: Blockers) -> None:
        self._runner = runner
        self._blockers = blockers

    async def join(self, node: NewNode) -> None:  # noqa: D102
        try:
            await self._runner.write(lambda: nodes.join(node))
        except StoreUnavailable as error:
            if waited_in_vain(error):  # for the process that had this id before: the next call finds it ended
                survey = await self.survey()
                owners = {each.share: each.owner for each in survey.allocations if each.owner is not None}
                mine = [share for share, owner in owners.items() if owner.node_id == node.node.node_id]
                await self._blockers.end_for_shares(mine)
            raise

    async def beat(self, node: NodeKey, timing: Timing) -> Beat:  # noqa: D102
        return await self._runner.at_once(lambda: nodes.beat(node, timing))

    async def owned(self, node: NodeKey) -> Beat:  # noqa: D102
        return await self._runner.look(lambda: nodes.owned(node))

    async def leave(self, node: NodeKey) -> None:  # noqa: D102
        await self._runner.write(lambda: nodes.leave(node))

    async def drain(self, node: NodeKey) -> None:  # noqa: D102
        await self._runner.write(lambda: nodes.drain(node))

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:  # noqa: D102
        await self._blockers.end_stuck()
        return await self._runner.once(lambda: nodes.lead(node, lease))

    async def resign(self, leadership: Leadership) -> bool:  # noqa: D102
        return await self._runner.once(lambda: nodes.resign(leadership))

    async def survey(self) -> Survey:  # noqa: D102
        return await self._runner.read(allotting.survey)

    async def allot(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        try:
            return await self._runner.write(lambda: allotting.allot(leadership, moves, grace))
        except StoreUnavailable as error:
            if not waited_in_vain(error):
                raise
        await self._blockers.end_for_shares({move.share for move in moves if isinstance(move, Seize)})
        return await self._runner.write(lambda: allotting.allot(leadership, moves, grace, waits=False))

    async def complete_shares(self, leadership: Leadership) -> int | None:  # noqa: D102
        return await self._runner.write(lambda: allotting.complete_shares(leadership))

    async def leader(self) -> LeaderView | None:  # noqa: D102
        return await self._runner.look(nodes.leader)

    async def nodes(self) -> list[NodeView]:  # noqa: D102
        return await self._runner.look(nodes.nodes)

    async def transitions(self, *, limit: int) -> list[Transition]:  # noqa: D102
        return await self._runner.look(lambda: transitions(limit))


class PostgresStreams:
    """`Streams` on PostgreSQL."""

    def __init__(
        self,
        runner: PoolRunner,
        transactions: PostgresTransactions,
        *,
        blockers: Blockers,
        notify: Callable[[], None],
        callers: Callable[[object], SwiftRunner],
    ) -> None:
        self._categories = Categories(runner)
        self._callers = callers
        self.events = PostgresEvents(runner, categories=self._categories, appended=lambda: runner.after_commit(notify))
        self.consumers = PostgresConsumers(runner, transactions)
        self.allocations = PostgresAllocations(runner, blockers)

    def join(self, using: object) -> PostgresEvents:  # noqa: D102
        return PostgresEvents(self._callers(using), categories=self._categories, appended=_no_hint)


def _no_hint() -> None:
    """What is in the caller's transaction cannot be seen before its commit, which only the caller knows of."""
