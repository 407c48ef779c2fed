"""The port's verbs for nodes, where Kafka decides: a node joins one group for each of its consumers, and none leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.groups.member import GroupMember
from holdfast.backends.kafka.groups.refusals import NeedsStore
from holdfast.backends.kafka.groups.shares import GroupShares
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import ConfigError
from holdfast.model.allocation import Leadership, Move, NodeKey, Timing
from holdfast.store.capabilities import JOBS
from holdfast.store.stream_values import LeaderView, NewNode, NodeView, OwnedShares, Survey, Transition

_NOW = timedelta(0)


class GroupAllocations:
    """`AllocationStore` of one process. `make` returns the member of a consumer; `members` holds those that run."""

    def __init__(
        self,
        make: Callable[[NewNode, str], GroupMember],
        members: dict[str, GroupMember],
        shares: GroupShares,
        topics: KafkaTopics,
        health: ClientHealth,
    ) -> None:
        self._make = make
        self._members = members
        self._shares = shares
        self._topics = topics
        self._health = health
        self._node: NewNode | None = None

    async def join(self, node: NewNode) -> None:
        """Join the groups; raises `ConfigError` if another process has this fixed node id."""
        for member in self._members.values():
            if isinstance(member.failure, ConfigError):
                raise member.failure
        if self._node is not None and self._node.node != node.node:
            raise ConfigError(
                f"this process is node {self._node.node.node_id} already: run the second node over another App"
            )
        self._node = node
        for each in node.members:
            known = self._members.get(each.consumer)
            if known is not None and known.failure is None:
                continue
            if known is not None:
                await asyncio.to_thread(known.close)
            self._members[each.consumer] = self._make(node, each.consumer)

    async def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102 - the port states the contracts
        return await asyncio.to_thread(self.heartbeat_blocking, node)

    def heartbeat_blocking(self, node: NodeKey) -> OwnedShares:
        """Return the shares; raises `StoreUnavailable` while no broker answers: then the node fences itself."""
        if self._health.is_down:
            self._topics.ping()
        return self.owned_blocking(node)

    async def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return self.owned_blocking(node)

    def owned_blocking(self, node: NodeKey) -> OwnedShares:
        """Return the shares that the groups have assigned; the node is unknown once a member has failed."""
        if self._node is None or self._node.node != node:
            return OwnedShares(is_known=False)
        if any(member.failure is not None for member in self._members.values()):
            return OwnedShares(is_known=False)
        return OwnedShares(is_known=True, owned=self._shares.owned())

    async def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:
        """Leave the groups; with a fixed id, the partitions wait for a restart until the session of the group ends."""
        if self._node is not None and self._node.node == node:
            self._node = None
            await self.close()

    async def close(self) -> None:
        """Leave all groups."""
        members = list(self._members.values())
        self._members.clear()
        await asyncio.gather(*(asyncio.to_thread(member.close) for member in members))

    async def drain(self, node: NodeKey) -> None:
        """Do nothing: the group assigns the partitions to others once this node has left."""

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Return None: the coordinator of the group decides."""
        return None

    async def resign(self, leadership: Leadership) -> bool:  # noqa: D102
        return False

    async def survey(self) -> Survey:  # noqa: D102
        return Survey((), ())

    async def move_shares(  # noqa: D102
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        return None

    async def complete_shares(self, leadership: Leadership) -> int | None:  # noqa: D102
        return None

    async def leader(self) -> LeaderView | None:  # noqa: D102
        return None

    async def nodes(self) -> list[NodeView]:
        """Return the node of this process: Kafka's own tools list the members of a group."""
        node = self._node
        if node is None:
            return []
        held = len(self._shares.owned())
        return [NodeView(node.node, node.host, node.pid, False, _NOW, node.timing.ttl, _NOW, node.members, held)]

    async def transitions(self, *, limit: int) -> list[Transition]:  # noqa: D102
        return []


class GroupExtender(NeedsStore):
    """`Extender`, for heartbeats of nodes alone."""

    def __init__(self, allocations: GroupAllocations) -> None:
        super().__init__(JOBS)
        self._allocations = allocations

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        return self._allocations.heartbeat_blocking(node)

    def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return self._allocations.owned_blocking(node)

    def close(self) -> None:
        """Do nothing: there is no separate connection."""
