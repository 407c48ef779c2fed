"""The stream store on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg

from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.postgres.runners import SwiftRunner
from holdfast.backends.postgres.verbs import append as appending
from holdfast.backends.postgres.verbs.share_locks import wait_for_former_owner, waiting_briefly, without_waiting
from holdfast.backends.sql.category_cache import Categories
from holdfast.backends.sql.pool_runner import runs_alone
from holdfast.backends.sql.streams import leadership as leading
from holdfast.backends.sql.streams import nodes, shares
from holdfast.backends.sql.streams.allocation_store import SqlAllocations
from holdfast.backends.sql.streams.event_store import ServerEvents, no_notification
from holdfast.errors import StoreUnavailable
from holdfast.model.allocation import Leadership, Move, NodeKey, Seize
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import LockedTooLong
from holdfast.store.stream_values import NewNode

COPY_FROM = 150  # events: from this number on, COPY is worth its additional round trips
_ATTEMPTS = 3


class PostgresEvents(ServerEvents):
    """`EventStore` on PostgreSQL."""

    def __init__(
        self, runner: SwiftRunner, *, categories: Categories, appended: Callable[[], None] = no_notification
    ) -> None:
        super().__init__(runner, categories=categories, appended=appended)
        self._swift = runner

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102 - the port states the contracts
        if not events:
            return []
        for number in range(1, _ATTEMPTS + 1):
            try:
                appended = await self._append(events)
            except psycopg.errors.UniqueViolation as error:
                # Another transaction has just appended one of these ids to another partition: a repeat finds it.
                if number == _ATTEMPTS or not runs_alone(self._swift):
                    message = "an event with the same id was appended concurrently to another partition: append again"
                    raise StoreUnavailable(message) from error
            else:
                self._appended()
                return appended
        raise AssertionError

    async def _append(self, events: Sequence[NewEvent]) -> list[Appended]:
        needed = {event.category for event in events}
        categories = await self._categories.of(needed)
        if not needed <= categories.keys():
            return await self._swift.write(lambda: appending.append_to_new(events, categories))
        if len(events) >= COPY_FROM and runs_alone(self._swift):
            return await self._swift.write(lambda: appending.copy(events, categories))
        return await self._swift.at_once(lambda: appending.append(events, categories))


class PostgresAllocations(SqlAllocations):
    """`AllocationStore` on PostgreSQL."""

    def __init__(self, runner: SwiftRunner, blockers: Blockers) -> None:
        super().__init__(runner, runner.at_once)
        self._blockers = blockers

    async def join(self, node: NewNode) -> None:  # noqa: D102
        try:
            await self._runner.write(lambda: nodes.join(node, before_shares=wait_for_former_owner))
        except LockedTooLong:  # by the previous process of this node id: the next call succeeds
            survey = await self.survey()
            owners = {each.share: each.owner for each in survey.shares if each.owner is not None}
            mine = [share for share, owner in owners.items() if owner.node_id == node.node.node_id]
            await self._blockers.end_for_shares(mine)
            raise

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:  # noqa: D102
        await self._blockers.end_stuck()
        return await self._runner.once(lambda: leading.lead(node, lease))

    async def move_shares(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        try:
            return await self._runner.write(
                lambda: shares.move_shares(leadership, moves, grace, lockable=waiting_briefly)
            )
        except LockedTooLong:
            pass
        await self._blockers.end_for_shares({move.share for move in moves if isinstance(move, Seize)})
        return await self._runner.write(lambda: shares.move_shares(leadership, moves, grace, lockable=without_waiting))
