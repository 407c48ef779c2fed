"""Subscribe, fetch, commit: the positions of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import parking
from holdfast.backends.sqlite.verbs.events import (
    find_category,
    position_at,
    require_category,
    stored,
    stream_version,
    version_at,
)
from holdfast.backends.sqlite.verbs.transitions import Row, record
from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.allocation import AllocationState, Grant, Share
from holdfast.model.event import StoredEvent, partition_of
from holdfast.store.stream_values import Commit, CommitVerdict, Fetched, Start, StartAt, Subscription


class Known(NamedTuple):
    """A consumer as it is kept."""

    category: str | None
    stream: str | None
    paused: int
    forgotten: int
    generation: int


def require_consumer(tx: Tx, consumer: str) -> Known:
    """Return a consumer; raise `ConsumerNotFound`."""
    row = tx.row("find_consumer", {"consumer": consumer})
    if row is None or Known(*row).forgotten:
        message = f"no consumer {consumer!r} has subscribed: it does when a node with it first runs"
        raise ConsumerNotFound(message)
    return Known(*row)


# --- subscribe --------------------------------------------------------------------------------------------------------


def subscribe(tx: Tx, consumer: str, subscription: Subscription, start: Start) -> bool:
    """Make a consumer known, with a share of each partition there is."""
    row = tx.row("find_consumer", {"consumer": consumer})
    known = None if row is None else Known(*row)
    if known is not None and not known.forgotten:
        was = Subscription(known.category, known.stream)
        if was != subscription:
            message = (
                f"consumer {consumer!r} reads {was}, not {subscription}: give the new one another name, "
                "or pause the old one and forget it first"
            )
            raise ConfigError(message)
        return False
    category, stream = subscription.category, subscription.stream
    tx.run("put_consumer", {"consumer": consumer, "category": category, "stream": stream})
    generation = 0 if known is None else known.generation
    for category_id, name, partitions in tx.rows("categories_of", {"category": category}):
        for number in partitions_of(stream, partitions):
            position = begin_at(tx, Share(consumer, name, number), stream, start)
            tx.run("add_allocation", (consumer, category_id, number, generation, position, tx.now))
    return True


def partitions_of(stream: str | None, partitions: int) -> list[int]:
    """Return the partitions that a subscription reads: all, or the one in which its stream lies."""
    return list(range(partitions)) if stream is None else [partition_of(stream, partitions)]


def begin_at(tx: Tx, share: Share, stream: str | None, start: Start) -> int:
    """Return the position that means `start` for a share."""
    if isinstance(start, datetime):
        return position_of(tx, share, stream, start)
    head = head_of(tx, share, stream)
    match start:
        case StartAt.BEGINNING:
            return 0
        case StartAt.END:
            return head
        case _:
            return min(int(start), head)


def position_of(tx: Tx, share: Share, stream: str | None, at: datetime) -> int:
    """Return the position of a share after which events recorded at or after an instant begin."""
    if stream is None:
        return position_at(tx, share.category, share.partition_id, at)
    return version_at(tx, require_category(tx, share.category).category_id, stream, at)


def head_of(tx: Tx, share: Share, stream: str | None) -> int:
    """Return the last position that there is for a share."""
    category_id = require_category(tx, share.category).category_id
    if stream is not None:
        return stream_version(tx, category_id, stream)
    position, _, _ = tx.row("head", {"category_id": category_id, "partition_id": share.partition_id})
    return int(position)


# --- fetch and commit -------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """A share under a grant that stands."""

    position: int
    state: str
    replay_until: int
    losses: int


def held(tx: Tx, grant: Grant) -> Held | None:
    """Return the share of a grant, None if the grant is stale."""
    row = tx.row("held_share", _names(grant))
    return None if row is None else Held(*row)


def _names(grant: Grant) -> dict[str, object]:
    share = grant.share
    return {
        "consumer": share.consumer,
        "category": share.category,
        "partition_id": share.partition_id,
        "generation": grant.generation,
    }


def fetch(tx: Tx, grant: Grant, *, after: int, limit: int, max_bytes: int) -> Fetched:
    """Return the next events and how the grant stands, as of one instant."""
    standing = held(tx, grant)
    if standing is None:
        return Fetched([], is_lost=True)
    share = grant.share
    stream = require_consumer(tx, share.consumer).stream
    place = parking.place(tx, share)
    parameters = {**place, "stream": stream, "after": after, "limit": limit}
    rows = tx.each("read_partition" if stream is None else "read_stream", parameters)
    events = _within(map(stored, rows), max_bytes)
    return Fetched(
        events=events,
        state=AllocationState(standing.state),
        position=standing.position,
        head=head_of(tx, share, stream),
        replay_until=standing.replay_until,
        losses=standing.losses,
        parked_streams=parking.streams(tx, place, events) if events else frozenset(),
        retries=parking.retries(tx, place, limit),
    )


def _within(events: Iterator[StoredEvent], max_bytes: int) -> list[StoredEvent]:
    """Take events until their payloads would exceed `max_bytes`, but the first in any case."""
    taken: list[StoredEvent] = []
    size = 0
    for event in events:
        size += len(event.payload) if event.payload.isascii() else len(event.payload.encode())
        if size > max_bytes and taken:
            break
        taken.append(event)
    return taken


def commit(tx: Tx, grant: Grant, step: Commit) -> CommitVerdict:
    """Move the position forward, with what is to be parked and unparked."""
    standing = held(tx, grant)
    if standing is None:
        return CommitVerdict.LOST
    if standing.position != step.after:
        return CommitVerdict.DONE if standing.position == step.position else CommitVerdict.LOST
    place = parking.place(tx, grant.share)
    by_version = require_consumer(tx, grant.share.consumer).stream is not None
    if not parking.settle(tx, place, step, by_version=by_version):
        return CommitVerdict.UNPARKED
    tx.run("move_position", {**place, "position": step.position, "tries": step.tries, "clears": step.clears_losses})
    return CommitVerdict.DONE


def verify(tx: Tx, grant: Grant) -> int | None:
    """Return the committed position, None for a stale grant."""
    standing = held(tx, grant)
    return None if standing is None else standing.position


def release(tx: Tx, grant: Grant) -> bool:
    """Give a share up."""
    standing = held(tx, grant)
    if standing is None:
        return False
    share = grant.share
    category = find_category(tx, share.category)
    if category is None:
        return False
    key = {"consumer": share.consumer, "category_id": category.category_id, "partition_id": share.partition_id}
    owner = tx.value("owner_of", key)
    tx.run("free_share", {**key, "grows": 0, "lost": 0, "target": None, "now": tx.now})
    row = Row(share.consumer, category.category_id, share.partition_id, standing.state, grant.generation, owner)
    record(tx, row, AllocationState.FREE, row.generation)
    return True
