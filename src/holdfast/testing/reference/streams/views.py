"""Lists of the reference model for streams, and the allocator's survey."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.allocation import Grant, Leadership, ShareState
from holdfast.model.instants import to_datetime
from holdfast.store.stream_values import (
    CategoryView,
    ConsumerView,
    LeaderView,
    NodeView,
    OwnedShare,
    ParkedView,
    ShareView,
    Survey,
    SurveyedShare,
)
from holdfast.testing.reference.streams.records import ReferenceCategory, ReferenceShare, StreamState


def span(micros: int) -> timedelta:
    """Return microseconds as a duration."""
    return timedelta(microseconds=micros)


def category(record: ReferenceCategory) -> CategoryView:
    """Return the view of a category."""
    return CategoryView(
        name=record.name,
        partitions=len(record.partitions),
        heads=tuple(partition.head for partition in record.partitions),
        trimmed=tuple(partition.trimmed for partition in record.partitions),
    )


def share(model: StreamState, row: ReferenceShare) -> ShareView:
    """Return one share of a consumer."""
    unread = model.unread(row.share, row.position)
    return ShareView(
        share=row.share,
        state=row.state,
        generation=row.generation,
        owner=None if row.owner is None else row.owner.node_id,
        target=row.target,
        position=row.position,
        head=model.head(row.share),
        behind=span(model.now - unread[0].recorded_us) if unread else None,
        parked=len(model.parked.get(row.share, {})),
        since=span(model.now - row.since_us),
        losses=row.losses,
    )


def consumers(model: StreamState) -> list[ConsumerView]:
    """Return the consumers by name, each with its shares in order."""
    return [
        ConsumerView(
            name=name,
            subscription=record.subscription,
            paused=record.paused,
            shares=tuple(share(model, row) for key, row in sorted(model.rows.items()) if key.consumer == name),
        )
        for name, record in sorted(model.consumers.items())
    ]


def parked(model: StreamState, consumer: str) -> list[ParkedView]:
    """Return the parked events of a consumer, in order."""
    model.consumer(consumer)
    return [
        ParkedView(
            share=key,
            position=position,
            event_id=each.event.id,
            stream=each.event.stream,
            failure=each.failure,
            attempts=each.attempts,
            is_retrying=each.is_retrying,
            parked_at=to_datetime(each.parked_us),
        )
        for key, entries in sorted(model.parked.items())
        for position, each in sorted(entries.items())
        if key.consumer == consumer
    ]


def is_overdue(model: StreamState, row: ReferenceShare) -> bool:
    """Whether a share is revoking and its deadline has passed."""
    return row.deadline_us is not None and row.deadline_us < model.now


def owned(model: StreamState, row: ReferenceShare) -> OwnedShare:
    """Return a share as its owner sees it."""
    left = None if row.deadline_us is None else span(max(row.deadline_us - model.now, 0))
    return OwnedShare(grant=Grant(row.share, row.generation), state=row.state, drain_left=left)


def nodes(model: StreamState) -> list[NodeView]:
    """Return the nodes in order."""
    return [
        NodeView(
            node=record.joined.node,
            host=record.joined.host,
            pid=record.joined.pid,
            is_draining=record.is_draining,
            silent=span(model.now - record.seen_us),
            ttl=span(record.ttl_us),
            joined=span(model.now - record.joined_us),
            members=record.joined.members,
            shares=sum(row.owner == record.joined.node for row in model.rows.values()),
        )
        for _, record in sorted(model.nodes.items())
    ]


def survey(model: StreamState) -> Survey:
    """Return the allocator's view of all nodes, consumers and shares."""
    return Survey(
        nodes=tuple(nodes(model)),
        shares=tuple(
            SurveyedShare(
                share=key,
                state=row.state,
                generation=row.generation,
                owner=row.owner,
                target=row.target,
                overdue=row.state is ShareState.REVOKING and is_overdue(model, row),
            )
            for key, row in sorted(model.rows.items())
        ),
        paused=frozenset(name for name, record in model.consumers.items() if record.paused),
        is_complete=all(key in model.rows for key in model.expected_shares()),
    )


def leader(model: StreamState) -> LeaderView | None:
    """Return the current or last leader."""
    if model.holder is None:
        return None
    expires_in = span(model.lease_until_us - model.now)
    return LeaderView(leadership=Leadership(model.holder, model.epoch), expires_in=expires_in)
