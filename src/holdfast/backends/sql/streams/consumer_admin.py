"""Operator actions on consumers: list, pause, resume, reset, forget, retry and drop parked events."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.backends.sql.steps import Each, records, rows, run, together
from holdfast.backends.sql.streams import parking
from holdfast.backends.sql.streams.consumers import require_consumer
from holdfast.backends.sql.streams.reading import position_at
from holdfast.backends.sql.streams.share_rows import ShareRow, log, released
from holdfast.backends.sql.streams.starts import ends_of, heads, start_positions
from holdfast.errors import ConfigError
from holdfast.model.allocation import Share, ShareState
from holdfast.store.steps import Steps
from holdfast.store.stream_values import ConsumerView, KnownStart, ParkedView, ShareView, Start, Subscription


class _ListedConsumer(NamedTuple):
    """A consumer with one of its shares; if it has none, the columns of the share are None."""

    consumer: str
    category: str | None
    stream: str | None
    paused: bool
    of_category: str | None
    partition_id: int
    state: str
    generation: int
    owner: str | None
    target: str | None
    position_id: int
    head: int
    behind: int | None
    parked: int
    since: int
    losses: int


def consumers() -> Steps[list[ConsumerView]]:
    """List consumers with their shares."""
    known: dict[str, ConsumerView] = {}
    shares: dict[str, list[ShareView]] = {}
    for row in (yield from records(_ListedConsumer, "list_consumers")):
        views = shares.setdefault(row.consumer, [])
        if row.of_category is not None:
            views.append(_share_view(row, row.of_category))
        subscription = Subscription(row.category, row.stream)
        known[row.consumer] = ConsumerView(row.consumer, subscription, bool(row.paused), tuple(views))
    return list(known.values())


def _share_view(row: _ListedConsumer, category: str) -> ShareView:
    return ShareView(
        share=Share(row.consumer, category, row.partition_id),
        state=ShareState(row.state),
        generation=row.generation,
        owner=row.owner,
        target=row.target,
        position=row.position_id,
        head=row.head,
        behind=None if row.behind is None else timedelta(microseconds=max(0, row.behind)),
        parked=row.parked,
        since=timedelta(microseconds=row.since),
        losses=row.losses,
    )


def pause(consumer: str) -> Steps[bool]:
    """Stop the granting of shares; the lock waits for a grant in flight."""
    yield from require_consumer(consumer, lock=True)
    return (yield from run("pause_consumer", consumer=consumer))


def resume(consumer: str) -> Steps[bool]:
    """Allow shares to be granted again."""
    yield from require_consumer(consumer, lock=True)
    return (yield from run("resume_consumer", consumer=consumer))


def _is_free(consumer: str, *, paused: bool, verb: str) -> Steps[bool]:
    if not paused:
        message = f"consumer {consumer!r} is not paused: pause it before you {verb} it, so that no node runs it"
        raise ConfigError(message)
    return not (yield from run("held_by_live_node", consumer=consumer))


def reset(consumer: str, to: Start | KnownStart) -> Steps[bool]:
    """Set the positions of a paused consumer; False while a live node owns a share."""
    known = yield from require_consumer(consumer, lock=True)
    if not (yield from _is_free(consumer, paused=known.paused, verb="reset")):
        return False
    locked = yield from records(ShareRow, "lock_shares_of_consumer", consumer=consumer)
    if not locked:
        return True
    places = {(head.category_id, head.partition_id): head for head in (yield from heads(known.category))}
    read = [places[row.category_id, row.partition_id] for row in locked]
    positions = yield from start_positions(read, known.stream, to)
    ends = yield from ends_of(read, known.stream)
    keys = [
        {"consumer": consumer, "category_id": head.category_id, "partition_id": head.partition_id, "position_id": at}
        for head, at in zip(read, positions, strict=True)
    ]
    resets = [{**key, "head": end} for key, end in zip(keys, ends, strict=True)]
    changes = [(row, released(row)._replace(generation=row.generation + 1)) for row in locked]
    yield from together(Each("reset_share", resets), Each("drop_parked_past", keys), *log(changes, 0))
    return True


def forget(consumer: str) -> Steps[bool]:
    """Delete a paused consumer; False while a live node owns a share."""
    known = yield from require_consumer(consumer, lock=True)
    if not (yield from _is_free(consumer, paused=known.paused, verb="forget")):
        return False
    locked = yield from records(ShareRow, "lock_shares_of_consumer", consumer=consumer)
    # One above the largest, as if each share had been seized: moves that were planned before become stale.
    generation = max([known.generation, *(row.generation + 1 for row in locked)])
    yield from run("forget_shares", consumer=consumer)
    yield from run("forget_parked", consumer=consumer)
    yield from run("forget_consumer", consumer=consumer, generation=generation)
    return True


def parked(consumer: str, after: ParkedView | None, limit: int) -> Steps[list[ParkedView]]:
    """List parked events in order."""
    yield from require_consumer(consumer)
    return (yield from parking.parked(consumer, after, limit))


def retry_parked(consumer: str, stream: str | None) -> Steps[int]:
    """Mark parked events to be handled again."""
    yield from _hold(consumer)
    return len((yield from rows("retry_parked", consumer=consumer, stream=stream)))


def drop_parked(consumer: str, stream: str | None, event_id: str | None) -> Steps[int]:
    """Delete parked events."""
    yield from _hold(consumer)
    return len((yield from rows("drop_parked", consumer=consumer, stream=stream, event_id=event_id)))


def _hold(consumer: str) -> Steps[None]:
    """Lock the shares: commits in flight that park events end first, later ones wait and see the result."""
    yield from require_consumer(consumer, lock=True)
    yield from rows("hold_shares_of_consumer", consumer=consumer)


def position_of(share: Share, at: datetime) -> Steps[int]:
    """Return the position of a share after which the events recorded at or after an instant begin."""
    stream = (yield from require_consumer(share.consumer)).stream
    return (yield from position_at(share.category, share.partition_id, at, stream))
