"""The state of queues, workers, nodes, consumers and schedules as one word, the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from holdfast.model import lease_rules
from holdfast.store.schedules import ScheduleView
from holdfast.store.stream_values import ConsumerView, NodeView
from holdfast.store.values import QueueView, TaskView, WorkerView

ScheduleState = Literal["active", "paused", "overdue", "undeclared"]


def schedule_state(view: ScheduleView) -> ScheduleState:
    """Return active, paused, overdue (no worker fires it) or undeclared (no worker's code declares it any longer)."""
    if view.paused:
        return "paused"
    if view.is_undeclared:
        return "undeclared"
    return "overdue" if view.is_overdue else "active"


def queue_state(view: QueueView | TaskView) -> str:
    """Return whether workers may claim from a queue, or jobs of a task: open or paused."""
    return "paused" if view.paused else "open"


def is_silent(view: WorkerView | NodeView) -> bool:
    """Return whether the last heartbeat of a worker is older than its lease, or that of a node older than its ttl.

    Live ones send heartbeats at least twice as often.
    """
    return lease_rules.is_silent(view.silent, view.ttl if isinstance(view, NodeView) else view.heartbeat.lease)


def worker_state(view: WorkerView) -> Literal["live", "silent", "stopped"]:
    """Return live, silent or stopped.

    A worker over HTTP, which has no process id, does not say when it stops: without a lease it has lost nothing.
    """
    if not is_silent(view):
        return "live"
    return "silent" if view.heartbeat.pid or view.running else "stopped"


def node_state(view: NodeView) -> Literal["live", "draining", "silent"]:
    """Return live, draining or silent."""
    if is_silent(view):
        return "silent"
    return "draining" if view.is_draining else "live"


def owners_of(view: ConsumerView) -> list[str]:
    """Return the ids of the nodes that own partitions of a consumer, live or not."""
    return sorted({share.owner for share in view.shares if share.owner is not None})


def consumer_state(view: ConsumerView, live_nodes: Collection[str]) -> str:
    """Return paused, running or, if no live node owns a partition, waiting."""
    if view.paused:
        return "paused"
    return "running" if any(owner in live_nodes for owner in owners_of(view)) else "waiting"


def live_ids(nodes: Collection[NodeView]) -> frozenset[str]:
    """Return the ids of the nodes that are not silent."""
    return frozenset(node.node.node_id for node in nodes if not is_silent(node))
