"""What people see of consumers and do to them: list, pause, resume, reset, forget."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.consumers import begin_at, head_of, require_consumer
from holdfast.backends.sqlite.verbs.transitions import Row, record
from holdfast.errors import ConfigError
from holdfast.model.allocation import AllocationState, Share
from holdfast.store.stream_values import ConsumerView, ShareView, Start, Subscription


def consumers(tx: Tx) -> list[ConsumerView]:
    """List consumers with their shares."""
    return [
        ConsumerView(
            name=consumer,
            subscription=Subscription(category, stream),
            paused=bool(paused),
            shares=tuple(
                _share_view(tx, consumer, stream, row) for row in tx.rows("shares_of", {"consumer": consumer})
            ),
        )
        for consumer, category, stream, paused, _ in tx.rows("consumer_names")
    ]


def _share_view(tx: Tx, consumer: str, stream: str | None, row: Any) -> ShareView:
    category_id, category, partition_id, state, generation, owner, target, position, losses, since, parked = row
    share = Share(consumer, category, partition_id)
    return ShareView(
        share=share,
        state=AllocationState(state),
        generation=generation,
        owner=owner,
        target=target,
        position=position,
        head=head_of(tx, share, stream),
        behind=_behind(tx, category_id, share, stream, position),
        parked=parked,
        since=timedelta(microseconds=tx.now - since),
        losses=losses,
    )


def _behind(tx: Tx, category_id: int, share: Share, stream: str | None, position: int) -> timedelta | None:
    """Return the age of the first event that is not done."""
    place = {"category_id": category_id, "partition_id": share.partition_id, "stream": stream, "after": position}
    recorded = tx.value("next_recorded" if stream is None else "next_recorded_of_stream", place)
    return None if recorded is None else timedelta(microseconds=max(0, tx.now - recorded))


def pause(tx: Tx, consumer: str) -> bool:
    """Ask that nobody consumes."""
    require_consumer(tx, consumer)
    return tx.run("pause_consumer", {"consumer": consumer}) > 0


def resume(tx: Tx, consumer: str) -> bool:
    """Let it go on."""
    require_consumer(tx, consumer)
    return tx.run("resume_consumer", {"consumer": consumer}) > 0


def _is_free(tx: Tx, consumer: str, verb: str) -> bool:
    if not require_consumer(tx, consumer).paused:
        message = (
            f"consumer {consumer!r} is not paused: pause it before you {verb} it, so that nobody consumes meanwhile"
        )
        raise ConfigError(message)
    return tx.row("held_by_the_living", {"consumer": consumer, "now": tx.now}) is None


def reset(tx: Tx, consumer: str, to: Start) -> bool:
    """Set the positions of a paused consumer; False while a living node holds a share."""
    if not _is_free(tx, consumer, "reset"):
        return False
    stream = require_consumer(tx, consumer).stream
    for row in tx.rows("shares_of", {"consumer": consumer}):
        category_id, category, partition_id, state, generation, owner, *_ = row
        share = Share(consumer, category, partition_id)
        position = begin_at(tx, share, stream, to)
        head = head_of(tx, share, stream)
        tx.run("reset_share", (position, head, tx.now, consumer, category_id, partition_id))
        tx.run("drop_parked_past", (consumer, category_id, partition_id, position))
        old = Row(consumer, category_id, partition_id, state, generation, owner)
        record(tx, old, AllocationState.FREE, generation + 1)
    return True


def forget(tx: Tx, consumer: str) -> bool:
    """Delete a paused consumer; False while a living node holds a share."""
    if not _is_free(tx, consumer, "forget"):
        return False
    for statement in ("forget_consumer", "forget_shares", "forget_parked"):
        tx.run(statement, {"consumer": consumer})
    return True


def retry_parked(tx: Tx, consumer: str, stream: str | None) -> int:
    """Ask the owners to handle parked events again."""
    require_consumer(tx, consumer)
    return tx.run("retry_parked", {"consumer": consumer, "stream": stream})


def drop_parked(tx: Tx, consumer: str, stream: str | None, event_id: str | None) -> int:
    """Delete parked events."""
    require_consumer(tx, consumer)
    return tx.run("drop_parked", {"consumer": consumer, "stream": stream, "event_id": event_id})
