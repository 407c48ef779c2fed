"""Subscribe, fetch, commit: the positions of consumers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import psycopg
from psycopg.types.numeric import Int8  # a plain int is sent by its size, and each size is a statement to prepare

from holdfast.backends.postgres.verbs import parking
from holdfast.backends.postgres.verbs.events import position_at, stored, version_at
from holdfast.backends.postgres.verbs.transitions import Step, record
from holdfast.backends.sql.steps import Ask, row, rows, run, together, value
from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.allocation import AllocationState, Grant, Share
from holdfast.model.event import partition_of
from holdfast.model.instants import to_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict, Fetched, ParkedEvent, Start, StartAt, Subscription


class Known(NamedTuple):
    """A consumer as it is kept."""

    category: str | None
    stream: str | None
    paused: bool
    forgotten: bool
    generation: int


def require_consumer(consumer: str, *, lock: bool = False) -> Steps[Known]:
    """Return a consumer; raise `ConsumerNotFound`."""
    found = yield from row("lock_consumer" if lock else "find_consumer", consumer=consumer)
    if found is None or Known(*found).forgotten:
        message = f"no consumer {consumer!r} has subscribed: it does when a node with it first runs"
        raise ConsumerNotFound(message)
    return Known(*found)


# --- subscribe --------------------------------------------------------------------------------------------------------


def subscribe(consumer: str, subscription: Subscription, start: Start) -> Steps[bool]:
    """Make a consumer known, with a share of each partition there is."""
    category, stream = subscription.category, subscription.stream
    generation = yield from value("put_consumer", consumer=consumer, category=category, stream=stream)
    if generation is None:
        known = yield from require_consumer(consumer)
        was = Subscription(known.category, known.stream)
        if was != subscription:
            message = (
                f"consumer {consumer!r} reads {was}, not {subscription}: give the new one another name, "
                "or pause the old one and forget it first"
            )
            raise ConfigError(message)
        return False
    places: list[tuple[int, str, int]] = [
        (category_id, name, number)
        for category_id, name, partitions in (yield from rows("partitions_of", category=category))
        for number in partitions_of(stream, partitions)
    ]
    positions = yield from begin_at([(name, number) for _, name, number in places], stream, start)
    yield from rows(
        "add_allocations",
        consumers=[consumer] * len(places),
        category_ids=[category_id for category_id, _, _ in places],
        partition_ids=[number for _, _, number in places],
        generations=[generation] * len(places),
        position_ids=positions,
    )
    return True


def partitions_of(stream: str | None, partitions: int) -> list[int]:
    """Return the partitions that a subscription reads: all, or the one in which its stream lies."""
    return list(range(partitions)) if stream is None else [partition_of(stream, partitions)]


def begin_at(places: Sequence[tuple[str, int]], stream: str | None, start: Start) -> Steps[list[int]]:
    """Return for each place, a category and a partition of it, the position that means `start`."""
    if start is StartAt.BEGINNING or not places:
        return [0] * len(places)
    if isinstance(start, datetime):
        found = yield from together(*(_ask_position(place, stream, to_micros(start)) for place in places))
        return [answer[0][0] for answer in found]
    heads = yield from heads_of(places, stream)
    return heads if start is StartAt.END else [min(int(start), head) for head in heads]


def _ask_position(place: tuple[str, int], stream: str | None, at: int) -> Ask:
    category, partition_id = place
    if stream is None:
        return Ask("position_at", {"category": category, "partition_id": partition_id, "at": at})
    return Ask("version_at", {"category": category, "stream": stream, "at": at})


def heads_of(places: Sequence[tuple[str, int]], stream: str | None) -> Steps[list[int]]:
    """Return the last position that there is for each place."""
    names = {"categories": [name for name, _ in places], "partition_ids": [number for _, number in places]}
    found = yield from rows("heads_of", stream=stream, **names)
    heads = {(name, number): head for name, number, head in found}
    return [heads[place] for place in places]


def position_of(share: Share, at: datetime) -> Steps[int]:
    """Return the position of a share after which events recorded at or after an instant begin."""
    stream = (yield from require_consumer(share.consumer)).stream
    if stream is None:
        return (yield from position_at(share.category, share.partition_id, at))
    return (yield from version_at(share.category, stream, at))


# --- fetch and commit -------------------------------------------------------------------------------------------------


def _names(grant: Grant) -> dict[str, object]:
    share = grant.share
    return {
        "consumer": share.consumer,
        "category": share.category,
        "partition_id": share.partition_id,
        "generation": Int8(grant.generation),
    }


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and how the grant stands, as of one instant."""
    wanted = {"after": Int8(after), "limit": Int8(limit), "max_bytes": Int8(max_bytes)}
    found = yield from rows("fetch", **_names(grant), **wanted)
    if not found:
        return Fetched([], is_lost=True)
    _, _, _, _, state, position, losses, head, _, _, replay_until, *_ = found[0]
    return Fetched(
        events=[stored(each[1:11]) for each in found if each[0] == 1],
        state=AllocationState(state),
        position=position,
        head=head,
        replay_until=replay_until,
        losses=losses,
        parked_streams=frozenset(each[3] for each in found if each[0] == 3),  # noqa: PLR2004 - kinds: see the statement
        retries=tuple(ParkedEvent(stored(each[1:11]), each[11]) for each in found if each[0] == 2),  # noqa: PLR2004
    )


def commit_position(grant: Grant, step: Commit) -> Steps[CommitVerdict]:
    """Move the position forward and nothing else; a repeat is recognised."""
    if (yield from run("commit_position", **_names(grant), **_step(step))):
        return CommitVerdict.DONE
    position = yield from value("position_of_share", **_names(grant))
    return CommitVerdict.DONE if position == step.position else CommitVerdict.LOST


def commit_or_fail(grant: Grant, step: Commit) -> Ask:
    """Move the position forward and nothing else, by a statement that fails if the grant is stale (`is_stale`).

    So a COMMIT can be sent with it, before its answer is known.
    """
    return Ask("commit_position_or_fail", {**_names(grant), **_step(step)})


def _step(step: Commit) -> dict[str, object]:
    numbers = {"after": Int8(step.after), "position": Int8(step.position)}
    return {**numbers, "tries": step.tries, "clears": step.clears_losses}


def is_stale(error: psycopg.Error) -> bool:
    """Tell whether this is how `commit_or_fail` says that the grant is stale."""
    return isinstance(error, psycopg.errors.InvalidTextRepresentation) and "holdfast: stale grant" in str(error)


def commit(grant: Grant, step: Commit) -> Steps[CommitVerdict]:
    """Move the position forward, with what is to be parked and unparked; in a transaction."""
    if not step.parks and not step.unparks:
        return (yield from commit_position(grant, step))
    found = yield from row("share_to_commit", **_names(grant))
    if found is None:
        return CommitVerdict.LOST
    category_id, position, by_version = found
    if position != step.after:
        return CommitVerdict.DONE if position == step.position else CommitVerdict.LOST
    place = parking.Place(grant.share.consumer, category_id, grant.share.partition_id)
    if not (yield from parking.settle(place, step, by_version=by_version)):
        return CommitVerdict.UNPARKED
    return (yield from commit_position(grant, step))


def verify(grant: Grant) -> Steps[int | None]:
    """Return the committed position, None for a stale grant; waits for transactions of its owner."""
    position: int | None = yield from value("wait_for_share", **_names(grant))
    return position


def lock_share(grant: Grant, milliseconds: int) -> Steps[bool]:
    """Lock the share until the end of the transaction; False if the grant is stale."""
    return (yield from run("lock_share", **_names(grant), milliseconds=milliseconds))


def release(grant: Grant) -> Steps[bool]:
    """Give a share up."""
    found = yield from row("lock_share_to_release", **_names(grant))
    if found is None:
        return False
    category_id, state, owner = found
    consumer, partition_id = grant.share.consumer, grant.share.partition_id
    yield from run("release_share", consumer=consumer, category_id=category_id, partition_id=partition_id)
    step = Step(consumer, category_id, partition_id, grant.generation, state, AllocationState.FREE, owner)
    yield from record([step])
    return True
