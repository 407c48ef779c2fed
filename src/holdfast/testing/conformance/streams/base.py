"""Shared by the stream themes: helpers for common steps.

Unless a test is about partitions, it has one category of one partition, `orders`, one consumer, `billing`, and hence
one share, `SHARE`. `LEADER` leads and consumes nothing; `NODE_A` and `NODE_B` consume.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from holdfast.errors import Unsupported
from holdfast.model.allocation import (
    Grant,
    GrantTo,
    Leadership,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    Share,
    ShareState,
    Timing,
)
from holdfast.model.event import Appended, NewEvent, StoredEvent, partition_of
from holdfast.model.ids import new_id
from holdfast.model.outcome import Failure
from holdfast.store.backend import Backend
from holdfast.store.stream_values import (
    Commit,
    CommitVerdict,
    Member,
    NewNode,
    ParkedView,
    ShareView,
    Start,
    StartAt,
    Subscription,
    SurveyedShare,
)
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import Conformance

T = TypeVar("T", bound=Callable[..., Any])
MANY = 1000
TIMING = Timing()
GRACE = TIMING.grace
DRAIN = timedelta(seconds=10)
SECOND = timedelta(seconds=1)
LONG = timedelta(hours=1)
GONE = TIMING.ttl + TIMING.grace + SECOND
"""The silence after which the shares of a node may be seized."""

CATEGORY = "orders"
CONSUMER = "billing"
SHARE = Share(CONSUMER, CATEGORY, 0)
LEADER = NodeKey("leader", "life-1")
NODE_A = NodeKey("node-a", "life-1")
NODE_B = NodeKey("node-b", "life-1")
REJOINED_A = NodeKey("node-a", "life-2")
FAILURE = Failure(error_class="ValueError", message="no such order", traceback="Traceback …", signature="5e1f")


def needs(what: str) -> Callable[[T], T]:
    """Skip a test, or the tests of a class, with a store that refuses this: its events are in another system."""

    def decorate(test: T) -> T:
        setattr(test, "needed", (*getattr(test, "needed", ()), what))  # noqa: B010 - neither has it declared
        return test

    return decorate


needs_counts = needs("count events")
needs_joins = needs("join a transaction")
needs_one_stream = needs("read one stream")
needs_expected_version = needs("append with expected_version")
needs_store_clock = needs("record events by the clock of the store")
needs_trims_of_unread = needs("trim past unread events")


class StreamConformance(Conformance):
    """The base class of all stream themes."""

    @pytest.fixture(autouse=True)
    def _skip_without_streams(self, backend: Backend, request: pytest.FixtureRequest) -> None:
        try:
            _ = backend.streams
        except Unsupported as refusal:
            pytest.skip(f"{backend.capabilities.store}: {refusal}")
        own: Any = request
        needed = (*getattr(own.function, "needed", ()), *getattr(own.cls, "needed", ()))
        for what in needed:
            reason = backend.capabilities.refusals.get(what)
            if reason is not None:
                pytest.skip(f"{what}: refused, {reason}")


def an_event(
    stream: str = "order-1",
    *,
    category: str = CATEGORY,
    name: str = "placed",
    payload: str = "{}",
    headers: dict[str, str] | None = None,
    expected_version: int | None = None,
    event_id: str | None = None,
) -> NewEvent:
    """Return an event to append."""
    return NewEvent(
        id=event_id or new_id(),
        category=category,
        stream=stream,
        name=name,
        payload=payload,
        headers=headers,
        expected_version=expected_version,
    )


def stream_in(partition_id: int, partitions: int, number: int = 0) -> str:
    """Return the name of a stream in a partition; each `number` gives another one.

    Kafka has another hash: the names are in the same partition by both.
    """
    names = (f"order-{n}" for n in range(10_000))
    both = (name for name in names if partition_of(name, partitions) == murmur_partition(name, partitions))
    return [name for name in both if partition_of(name, partitions) == partition_id][number]


def murmur_partition(stream: str, partitions: int) -> int:
    """Return the partition of a key in Kafka, as its Java client computes it: murmur2, made positive."""
    data, most = stream.encode(), 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    for start in range(0, len(data) - len(data) % 4, 4):
        part = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & most
        part = (part ^ part >> 24) * 0x5BD1E995 & most
        found = found * 0x5BD1E995 & most ^ part
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & most
    found = (found ^ found >> 13) * 0x5BD1E995 & most
    return ((found ^ found >> 15) & 0x7FFFFFFF) % partitions


async def append(backend: Backend, *events: NewEvent) -> list[Appended]:
    """Append events that are all new; return their places: the first n of a partition are at the positions 1 to n.

    Kafka marks the end of a transaction by a position: there each is appended by itself.
    """
    if "count events" in backend.capabilities.refusals:
        appended = [(await backend.streams.events.append([event]))[0] for event in events]
    else:
        appended = await backend.streams.events.append(events)
    assert [each.id for each in appended] == [event.id for event in events]
    assert all(each.is_new for each in appended)
    return appended


async def append_to(backend: Backend, *streams: str, category: str = CATEGORY) -> list[str]:
    """Append one event to each stream, in order; return the ids of the events."""
    return [each.id for each in await append(backend, *(an_event(stream, category=category) for stream in streams))]


async def read(
    backend: Backend, category: str = CATEGORY, partition_id: int = 0, *, after: int = 0
) -> list[StoredEvent]:
    """Return the events of a partition."""
    return await backend.streams.events.read(category, partition_id, after=after, limit=MANY)


async def begin_consumer(
    backend: Backend,
    *streams: str,
    consumer: str = CONSUMER,
    category: str = CATEGORY,
    partitions: int = 1,
    start: Start = StartAt.BEGINNING,
) -> list[str]:
    """Create a category with one event per stream, then a consumer of it; return the ids of the events."""
    await backend.streams.events.open_category(category, partitions)
    ids = await append_to(backend, *streams, category=category) if streams else []
    await backend.streams.consumers.subscribe(consumer, Subscription(category=category), start)
    return ids


def a_node(node: NodeKey, *consumers: str, timing: Timing = TIMING) -> NewNode:
    """Return the registration of a node."""
    members = tuple(Member(consumer) for consumer in consumers or (CONSUMER,))
    return NewNode(node=node, host="host", pid=7, members=members, timing=timing)


async def join(backend: Backend, *nodes: NodeKey) -> None:
    """Register nodes."""
    for node in nodes:
        await backend.streams.allocations.join(a_node(node))


async def lead(backend: Backend, node: NodeKey = LEADER, lease: timedelta = LONG) -> Leadership:
    """Take leadership; it must be available."""
    leadership = await backend.streams.allocations.lead(node, lease)
    assert leadership is not None
    return leadership


async def move_shares(backend: Backend, *moves: Move) -> list[bool]:
    """Carry out moves as the leader."""
    done = await backend.streams.allocations.move_shares(await lead(backend), moves, grace=GRACE)
    assert done is not None
    return done


async def surveyed(backend: Backend, share: Share = SHARE) -> SurveyedShare:
    """Return a share as the allocator sees it."""
    (found,) = [each for each in (await backend.streams.allocations.survey()).shares if each.share == share]
    return found


async def grant_to(backend: Backend, node: NodeKey, share: Share = SHARE) -> Grant:
    """Grant a free share to a registered node."""
    generation = (await surveyed(backend, share)).generation
    assert await move_shares(backend, GrantTo(share, generation, node)) == [True]
    return Grant(share, generation + 1)


async def granted(backend: Backend, node: NodeKey = NODE_A, share: Share = SHARE) -> Grant:
    """Register a node and grant it a free share."""
    await join(backend, node)
    return await grant_to(backend, node, share)


async def consuming(backend: Backend, *streams: str) -> Grant:
    """Create the category with one event per stream and its consumer; grant its share to `NODE_A`."""
    await begin_consumer(backend, *streams)
    return await granted(backend)


async def revoke(backend: Backend, grant: Grant, *, drain: timedelta | None = DRAIN, target: str | None = None) -> None:
    """Revoke a granted share."""
    assert await move_shares(backend, Revoke(grant.share, grant.generation, drain, target)) == [True]


async def seize(backend: Backend, grant: Grant, reason: SeizeReason = SeizeReason.SILENT) -> None:
    """Seize a share; it must be possible."""
    assert await move_shares(backend, Seize(grant.share, grant.generation, reason)) == [True]


async def lose(backend: Backend, clock: ManualClock, grant: Grant) -> None:
    """Let the owner stay silent until its share is seized."""
    clock.advance(GONE)
    await seize(backend, grant)


async def commit(backend: Backend, grant: Grant, after: int, position: int, **rest: Any) -> CommitVerdict:
    """Commit one step of a consumer."""
    return await backend.streams.consumers.commit(grant, Commit(after, position, **rest))


async def share_view(backend: Backend, share: Share = SHARE) -> ShareView:
    """Return the view of a share."""
    (found,) = [
        each for view in await backend.streams.consumers.consumers() for each in view.shares if each.share == share
    ]
    return found


async def positions(backend: Backend, consumer: str = CONSUMER) -> dict[tuple[str, int], int]:
    """Return the positions of a consumer by category and partition."""
    (view,) = [view for view in await backend.streams.consumers.consumers() if view.name == consumer]
    return {(each.share.category, each.share.partition_id): each.position for each in view.shares}


async def parked(backend: Backend, consumer: str = CONSUMER) -> list[ParkedView]:
    """Return the parked events of a consumer."""
    return await backend.streams.consumers.parked(consumer, limit=MANY)


async def snapshot(backend: Backend) -> tuple[Any, ...]:
    """Return all consumers, shares and nodes, to compare before and after."""
    consumers, allocations = backend.streams.consumers, backend.streams.allocations
    views = await consumers.consumers()
    return (
        views,
        [await parked(backend, view.name) for view in views],
        await allocations.survey(),
        await allocations.nodes(),
        await allocations.transitions(limit=MANY),
    )


async def state_of(backend: Backend, share: Share = SHARE) -> ShareState:
    """Return the state of a share."""
    return (await surveyed(backend, share)).state
