"""The checks of `holdfast doctor` for the topics of categories whose events are in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from holdfast.reports.finding import Finding, FindingLevel, fine, some
from holdfast.reports.times import span
from holdfast.store.foreign_events import FOREIGN_TOPICS, ForeignTopic

_HALF = 2
_SAFE_REPLICAS = 2


def examine_kafka(facts: Mapping[str, str]) -> list[Finding]:
    """Check the topics; nothing if the app has no events in Kafka."""
    if FOREIGN_TOPICS not in facts:
        return []
    topics = msgspec.json.decode(facts[FOREIGN_TOPICS], type=list[ForeignTopic])
    if not topics:
        return [fine("topics", "none")]
    found = [topic for topic in topics if not topic.trouble]
    return [
        _trouble(topics),
        *_hidden(found),
        *_partitions(found),
        _positions(found),
        *_replicas(found),
        *_retention(found),
    ]


def _trouble(topics: Sequence[ForeignTopic]) -> Finding:
    failed = [topic for topic in topics if topic.trouble]
    if not failed:
        return fine("topics", f"{len(topics)}, each the one whose positions are stored")
    return Finding("topics", FindingLevel.BAD, some([f"{topic.category}: {topic.trouble}" for topic in failed]))


def _hidden(topics: Sequence[ForeignTopic]) -> list[Finding]:
    hidden = [f"{topic.topic}: {topic.hidden}" for topic in topics if topic.hidden]
    remedy = (
        "Give the user DESCRIBE_CONFIGS on the topics: retention and min.insync.replicas are not checked without it."
    )
    return [Finding("topic settings", FindingLevel.WARN, some(hidden), remedy)] if hidden else []


def _partitions(topics: Sequence[ForeignTopic]) -> list[Finding]:
    """Warn of partitions that nodes have not taken over yet; afterwards the store does not know which are new."""
    grown = [f"{topic.topic}: {topic.added} more" for topic in topics if topic.added]
    if not grown:
        return []
    remedy = "A stream may be in two of them now: its order is not kept until its older events are handled."
    return [Finding("partitions", FindingLevel.WARN, some(grown), remedy)]


def _positions(topics: Sequence[ForeignTopic]) -> Finding:
    stopped = [share for topic in topics for share in topic.stopped]
    if not stopped:
        return fine("positions", "the next event of each share is there")
    remedy = "These shares are stopped: pause the consumer, then holdfast consumer reset NAME --to beginning."
    return Finding("positions", FindingLevel.BAD, some(stopped), remedy)


def _replicas(topics: Sequence[ForeignTopic]) -> list[Finding]:
    findings: list[Finding] = []
    single = [topic.topic for topic in topics if topic.replicas < _SAFE_REPLICAS]
    if single:
        remedy = "With its only broker, acknowledged events are lost: raise the replication factor to 3."
        findings.append(Finding("replicas", FindingLevel.WARN, f"replication factor 1: {some(single)}", remedy))
    known = [(topic, topic.min_in_sync) for topic in topics if topic.min_in_sync is not None]
    alone = [topic.topic for topic, in_sync in known if in_sync < _SAFE_REPLICAS <= topic.replicas]
    if alone:
        remedy = "An event may be acknowledged by one broker alone: set min.insync.replicas of the topics to 2."
        findings.append(Finding("in-sync replicas", FindingLevel.WARN, f"min.insync.replicas 1: {some(alone)}", remedy))
    return findings or _none(topics, "replicas", "acknowledged events survive the loss of a broker")


def _retention(topics: Sequence[ForeignTopic]) -> list[Finding]:
    """Warn when unread events are older than half of the retention time, and where their size decides."""
    findings: list[Finding] = []
    near = [
        f"{topic.topic} deletes after {span(timedelta(seconds=topic.retention))}, and its oldest unread event is "
        f"{span(timedelta(seconds=topic.unread_for))} old"
        for topic in topics
        if topic.retention is not None and topic.unread_for is not None and topic.unread_for * _HALF > topic.retention
    ]
    if near:
        remedy = "Raise retention.ms of the topic, or make its consumers faster: deleted events stop them."
        findings.append(Finding("retention", FindingLevel.BAD, some(near), remedy))
    sized = [f"{topic.topic}: {topic.retention_bytes:,} bytes" for topic in topics if topic.retention_bytes is not None]
    if sized:
        remedy = "Events are deleted by size, read or not: set retention.bytes of the topics to -1."
        findings.append(Finding("retention by size", FindingLevel.WARN, some(sized), remedy))
    return findings or _none(topics, "retention", "no unread event is about to be deleted")


def _none(topics: Sequence[ForeignTopic], check: str, text: str) -> list[Finding]:
    """Return that a check has found nothing; no finding if it could not see the settings of all topics."""
    return [] if any(topic.hidden for topic in topics) else [fine(check, text)]
