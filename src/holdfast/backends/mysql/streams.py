"""The stream store on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.mysql.runners import MysqlPoolRunner
from holdfast.backends.mysql.verbs import append as appending
from holdfast.backends.mysql.verbs.fetch import fetch
from holdfast.backends.sql.steps import rows, run
from holdfast.backends.sql.streams import nodes, shares
from holdfast.backends.sql.streams.allocation_store import SqlAllocations
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.backends.sql.streams.consumers import grant_names
from holdfast.backends.sql.streams.event_store import ServerEvents
from holdfast.model.allocation import Grant, Leadership, Move, Seize, Share
from holdfast.model.event import Appended, NewEvent
from holdfast.store.fences import HandlersTransactions
from holdfast.store.steps import LockedTooLong, Runner, Steps
from holdfast.store.stream_values import Fetched, NewNode


def lock_share(grant: Grant, milliseconds: int) -> Steps[bool]:
    """Lock a share for a handler's transaction; return whether the grant is valid.

    The latch is locked first, by the first statement of the transaction: what the next one reads is not older.
    """
    names = grant_names(grant)
    place = {name: value for name, value in names.items() if name != "generation"}
    if not (yield from run("lock_latch", **place, milliseconds=milliseconds)):
        return False
    return (yield from run("lock_share", **names, milliseconds=milliseconds))


class MysqlEvents(ServerEvents):
    """`EventStore`."""

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102 - the port states the contracts
        if not events:
            return []
        needed = {event.category for event in events}
        categories = await self._categories.of(needed)
        if needed <= categories.keys():
            appended = await self._runner.write(lambda: appending.append(events, categories))
        else:
            appended = await self._runner.write(lambda: appending.append_to_new(events, categories))
        self._appended()
        return appended


class MysqlConsumers(SqlConsumers):
    """`ConsumerStore`."""

    def __init__(self, runner: Runner, transactions: HandlersTransactions) -> None:
        super().__init__(runner, transactions, fetch)

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        return await self._runner.read(lambda: fetch(grant, after=after, limit=limit, max_bytes=max_bytes))


class MysqlAllocations(SqlAllocations):
    """`AllocationStore`: the leader and a joining node wait a second at most for a transaction of an owner.

    The sessions of a frozen owner end by themselves: the server ends those that are silent for longer than the limit of
    their transaction.
    """

    def __init__(self, runner: MysqlPoolRunner) -> None:
        super().__init__(runner, runner.once)
        self._pool = runner

    async def join(self, node: NewNode) -> None:  # noqa: D102
        await self._pool.write_briefly(lambda: nodes.join(node))

    async def move_shares(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        try:
            return await self._pool.write_briefly(lambda: shares.move_shares(leadership, moves, grace))
        except LockedTooLong:
            pass
        return await self._pool.write_briefly(
            lambda: shares.move_shares(leadership, moves, grace, lockable=_without_waiting)
        )


def _without_waiting(moves: Sequence[Move]) -> Steps[set[Move]]:
    """Return the moves that need not wait for a transaction of an owner."""
    wanted = shares.share_lists({move.share for move in moves if isinstance(move, Seize)})
    found: list[Any] = yield from rows("free_latches", **wanted)
    free = {Share(*row) for row in found}
    return {move for move in moves if not isinstance(move, Seize) or move.share in free}
