"""Removing a node that is known to be dead, so that the others need not wait for its silence."""

from __future__ import annotations

import logging

from holdfast.store.backend import Backend

_logger = logging.getLogger("holdfast.streams")


async def remove_dead_node(backend: Backend, incarnation: str, reason: str) -> None:
    """Free the shares of a dead node, and its leadership if it led; safe to repeat.

    Nothing of the node may run any more. A node that has left by itself, or that has a later incarnation, is not there.
    """
    store = backend.streams.allocations
    for view in await store.nodes():
        if view.node.incarnation == incarnation:
            await store.leave(view.node, is_lost=True)
            _logger.warning("node %s (%s) was lost with %d shares", view.node.node_id, reason, view.shares)
    leader = await store.leader()
    if leader is not None and leader.leadership.node.incarnation == incarnation:
        await store.resign(leader.leadership)
    backend.notifier.notify()
