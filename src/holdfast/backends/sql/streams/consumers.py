"""The positions of consumers: subscribe, commit, verify, release."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sql.steps import each, records, rows, run, value
from holdfast.backends.sql.streams import parking
from holdfast.backends.sql.streams.reading import stored, stream_version
from holdfast.backends.sql.streams.share_rows import ShareRow, released, write
from holdfast.backends.sql.streams.starts import places_of, start_positions
from holdfast.backends.sql.streams.survey import new_share
from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.allocation import Grant, ShareState
from holdfast.model.event import StoredEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict, Fetched, KnownStart, ParkedEvent, Start, Subscription


class ConsumerRow(NamedTuple):
    """A consumer, as stored."""

    category: str | None
    stream: str | None
    paused: bool
    forgotten: bool
    generation: int

    @property
    def subscription(self) -> Subscription:
        """The subscription."""
        return Subscription(self.category, self.stream)


class Granted(NamedTuple):
    """A share under a live grant."""

    category_id: int
    position_id: int
    state: str
    replay_until: int
    losses: int
    stream: str | None


def fetched(grant: Grant, share: Granted, events: list[StoredEvent], limit: int) -> Steps[Fetched]:
    """Return the next events of a share with its state and the events to be retried."""
    category, stream = grant.share.category, share.stream
    place = place_names(grant, share)
    streams = sorted({event.stream for event in events})
    parked = (yield from rows("parked_among", **place, streams=streams, handled=[])) if streams else []
    retries = yield from rows("list_retries", **place, limit=limit)
    return Fetched(
        events=events,
        state=ShareState(share.state),
        position=share.position_id,
        head=(yield from value("find_head", **place) if stream is None else stream_version(category, stream)),
        replay_until=share.replay_until,
        losses=share.losses,
        parked_streams=frozenset(name for (name,) in parked),
        retries=tuple(ParkedEvent(stored(row[:-1]), row[-1]) for row in retries),
    )


def _find(statement: str, consumer: str) -> Steps[ConsumerRow | None]:
    found = yield from records(ConsumerRow, statement, consumer=consumer)
    return found[0] if found and not found[0].forgotten else None


def require_consumer(consumer: str, *, lock: bool = False) -> Steps[ConsumerRow]:
    """Return a consumer; raise `ConsumerNotFound` if it does not exist."""
    found = yield from _find("lock_consumer" if lock else "find_consumer", consumer)
    if found is None:
        message = f"there is no consumer {consumer!r}: it subscribes when a node first runs it"
        raise ConsumerNotFound(message)
    return found


def subscribe(consumer: str, subscription: Subscription, start: Start | KnownStart) -> Steps[bool]:
    """Register a consumer, with a share for each existing partition."""
    known = yield from _find("find_consumer", consumer)
    generation = (yield from _register(consumer, subscription)) if known is None else None
    if generation is None:
        known = known or (yield from require_consumer(consumer))
        if known.subscription != subscription:
            message = (
                f"consumer {consumer!r} reads {known.subscription}, not {subscription}: give the new one another name, "
                "or first pause and forget the old one"
            )
            raise ConfigError(message)
        return False
    places = yield from places_of(subscription)
    positions = yield from start_positions(places, subscription.stream, start)
    shares = [
        new_share(consumer, place.category_id, place.partition_id, generation=generation, position=position)
        for place, position in zip(places, positions, strict=True)
    ]
    yield from each("add_share", shares)
    return True


def _register(consumer: str, subscription: Subscription) -> Steps[int | None]:
    """Return the first generation of a new consumer's shares; None if another transaction has registered it."""
    names = {"consumer": consumer, "category": subscription.category, "stream": subscription.stream}
    is_new = yield from run("add_consumer", **names)
    (row,) = yield from records(ConsumerRow, "lock_consumer", consumer=consumer)
    if not is_new and not row.forgotten:
        return None
    if not is_new:
        yield from run("revive_consumer", **names)
    return row.generation


# --- under a grant ----------------------------------------------------------------------------------------------------


def grant_names(grant: Grant) -> dict[str, object]:
    """Return the parameters that name a grant in a statement."""
    share = grant.share
    return {
        "consumer": share.consumer,
        "category": share.category,
        "partition_id": share.partition_id,
        "generation": grant.generation,
    }


def place_names(grant: Grant, share: Granted) -> dict[str, object]:
    """Return the parameters that name a share by the id of its category."""
    names = grant.share
    return {"consumer": names.consumer, "category_id": share.category_id, "partition_id": names.partition_id}


def position_step(commit: Commit) -> dict[str, object]:
    """Return the parameters of `commit_position` except those of the grant."""
    moved = {"after": commit.after, "position": commit.position}
    return {**moved, "begins_trial": commit.begins_trial, "clears": commit.clears_losses}


def granted_share(grant: Grant, statement: str = "find_granted") -> Steps[Granted | None]:
    """Return the share of a grant, or None if the grant is stale."""
    found = yield from records(Granted, statement, **grant_names(grant))
    return found[0] if found else None


def commit(grant: Grant, step: Commit) -> Steps[CommitVerdict]:
    """Move the position forward, and park and unpark events."""
    if not step.parks and not step.unparks:
        return (yield from commit_position(grant, step))
    share = yield from granted_share(grant, "lock_granted")
    if share is None:
        return CommitVerdict.LOST
    if share.position_id != step.after:
        return CommitVerdict.DONE if share.position_id == step.position else CommitVerdict.LOST
    if not (yield from parking.settle(place_names(grant, share), step, by_version=share.stream is not None)):
        return CommitVerdict.UNPARKED
    return (yield from commit_position(grant, step))


def commit_position(grant: Grant, step: Commit) -> Steps[CommitVerdict]:
    """Only move the position forward; a repeat is recognised."""
    if (yield from run("commit_position", **grant_names(grant), **position_step(step))):
        return CommitVerdict.DONE
    share = yield from granted_share(grant)
    is_repeat = share is not None and share.position_id == step.position
    return CommitVerdict.DONE if is_repeat else CommitVerdict.LOST


def verify(grant: Grant) -> Steps[int | None]:
    """Return the committed position, or None for a stale grant; waits for transactions of its owner."""
    position: int | None = yield from value("wait_for_share", **grant_names(grant))
    return position


def release(grant: Grant) -> Steps[bool]:
    """Release a share."""
    found = yield from records(ShareRow, "lock_granted_share", **grant_names(grant))
    if not found:
        return False
    yield from write([(found[0], released(found[0]))])
    return True
