"""Removes a node that is known to be dead, so that its shares are granted without waiting for its `ttl`."""

from __future__ import annotations

import logging

from holdfast.store.backend import Backend

_logger = logging.getLogger("holdfast.streams")


async def remove_dead_node(backend: Backend, incarnation: str, reason: str) -> None:
    """Free the shares of a dead node, and its leadership if it was the leader; safe to repeat.

    No part of the node may still run. Does nothing if this incarnation has left, or was replaced by a later one.
    """
    store = backend.streams.allocations
    for view in await store.nodes():
        if view.node.incarnation == incarnation:
            await store.leave(view.node, is_lost=True)
            _logger.warning("node %s (%s) is removed; %d partitions are free", view.node.node_id, reason, view.shares)
    leader = await store.leader()
    if leader is not None and leader.leadership.node.incarnation == incarnation:
        await store.resign(leader.leadership)
    backend.notifier.notify()
