"""The checks of `holdfast doctor` for consumers and nodes, and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.counted import counted
from holdfast.reports.finding import Finding, FindingLevel, fine, some
from holdfast.reports.states import is_silent
from holdfast.reports.times import span
from holdfast.store.stream_values import ConsumerView, NodeView

_LONG_BEHIND = timedelta(minutes=5)
_ZERO = timedelta(0)


def examine_streams(consumers: Sequence[ConsumerView], nodes: Sequence[NodeView]) -> list[Finding]:
    """Check consumers and nodes; without any consumers, return a single finding."""
    if not consumers:
        return [fine("consumers", "none")]
    served = {member.consumer for node in nodes if not is_silent(node) for member in node.members}
    # The lag of a paused consumer is intended; the pause is a separate finding.
    waiting = [consumer for consumer in consumers if consumer.lag and not consumer.paused]
    return [
        _unserved(consumers, [consumer for consumer in waiting if consumer.name not in served]),
        _behind([consumer for consumer in waiting if consumer.name in served]),
        _paused(consumers),
        _parked(consumers),
        _silent(nodes),
    ]


def _unserved(consumers: Sequence[ConsumerView], unserved: Sequence[ConsumerView]) -> Finding:
    if not unserved:
        return fine("consumers", f"{len(consumers)}, with a live node for each that has events left")
    names = [
        f"{consumer.name} ({counted(consumer.lag, 'event')} left, {span(consumer.behind or _ZERO)} behind)"
        for consumer in unserved
    ]
    remedy = "Start a worker with `holdfast worker run` and the app that defines them."
    return Finding("consumers", FindingLevel.WARN, f"no live node runs {some(names)}", remedy)


def _behind(served: Sequence[ConsumerView]) -> Finding:
    if not served:
        return fine("consumer lag", "none")
    late = [consumer for consumer in served if (consumer.behind or _ZERO) >= _LONG_BEHIND]
    if late:
        names = [
            f"{consumer.name} is {span(consumer.behind or _ZERO)} behind ({counted(consumer.lag, 'event')} left)"
            for consumer in late
        ]
        remedy = "Run `holdfast consumer list --partitions` to see whether they advance; add nodes, or check the logs."
        return Finding("consumer lag", FindingLevel.WARN, some(names), remedy)
    last = max(served, key=lambda consumer: consumer.behind or _ZERO)
    left = counted(sum(consumer.lag for consumer in served), "event")
    return fine("consumer lag", f"{left} left; {last.name} is furthest behind, by {span(last.behind or _ZERO)}")


def _paused(consumers: Sequence[ConsumerView]) -> Finding:
    paused = [consumer.name for consumer in consumers if consumer.paused]
    if not paused:
        return fine("paused consumers", "none")
    remedy = f"`holdfast consumer resume {paused[0]}` resumes it."
    return Finding("paused consumers", FindingLevel.WARN, some(paused), remedy)


def _parked(consumers: Sequence[ConsumerView]) -> Finding:
    having = [consumer for consumer in consumers if consumer.parked]
    if not having:
        return fine("parked events", "none")
    names = [f"{consumer.name} {consumer.parked:,}" for consumer in having]
    remedy = f"`holdfast consumer parked {having[0].name}` shows the errors; then retry or drop the events."
    return Finding("parked events", FindingLevel.WARN, some(names), remedy)


def _silent(nodes: Sequence[NodeView]) -> Finding:
    silent = [node.node.node_id for node in nodes if is_silent(node)]
    live = len(nodes) - len(silent)
    if not silent:
        return fine("nodes", f"{live} live")
    text = f"{live} live, {len(silent)} silent: {some(silent)}"
    return Finding("nodes", FindingLevel.WARN, text, "They have died or cannot reach the store.")
