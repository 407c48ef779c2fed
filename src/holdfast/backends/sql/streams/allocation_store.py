"""The port's verbs for nodes, leadership and shares, on a SQL store."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sql.streams import leadership as leading
from holdfast.backends.sql.streams import nodes, share_log, shares, survey
from holdfast.model.allocation import Leadership, Move, NodeKey, Timing
from holdfast.store.steps import Runner, Steps, Verb
from holdfast.store.stream_values import LeaderView, NewNode, NodeView, OwnedShares, Survey, Transition


def timed_heartbeat(node: NodeKey, timing: Timing) -> Verb[OwnedShares]:
    """Return the verb of a heartbeat that is sent now; it answers how long it waited until it began."""
    sent = time.monotonic()

    def verb() -> Steps[OwnedShares]:
        waited = timedelta(seconds=time.monotonic() - sent)
        return msgspec.structs.replace((yield from nodes.heartbeat(node, timing)), waited=waited)

    return verb


class SqlAllocations:
    """`AllocationStore` on a SQL store. `run_heartbeat` runs the verb of a heartbeat."""

    def __init__(self, runner: Runner, run_heartbeat: Callable[[Verb[OwnedShares]], Awaitable[OwnedShares]]) -> None:
        self._runner = runner
        self._run_heartbeat = run_heartbeat

    async def join(self, node: NewNode) -> None:  # noqa: D102 - the port states the contracts
        await self._runner.write(lambda: nodes.join(node))

    async def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        return await self._run_heartbeat(timed_heartbeat(node, timing))

    async def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return await self._runner.look(lambda: nodes.owned(node))

    async def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:  # noqa: D102
        await self._runner.write(lambda: nodes.leave(node, is_lost=is_lost))

    async def drain(self, node: NodeKey) -> None:  # noqa: D102
        await self._runner.write(lambda: nodes.drain(node))

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:  # noqa: D102
        return await self._runner.once(lambda: leading.lead(node, lease))

    async def resign(self, leadership: Leadership) -> bool:  # noqa: D102
        return await self._runner.once(lambda: leading.resign(leadership))

    async def survey(self) -> Survey:  # noqa: D102
        return await self._runner.read(survey.survey)

    async def move_shares(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        return await self._runner.write(lambda: shares.move_shares(leadership, moves, grace))

    async def complete_shares(self, leadership: Leadership) -> int | None:  # noqa: D102
        return await self._runner.write(lambda: survey.complete_shares(leadership))

    async def leader(self) -> LeaderView | None:  # noqa: D102
        return await self._runner.look(leading.leader)

    async def nodes(self) -> list[NodeView]:  # noqa: D102
        return await self._runner.look(nodes.nodes)

    async def transitions(self, *, limit: int) -> list[Transition]:  # noqa: D102
        return await self._runner.look(lambda: share_log.transitions(limit))
