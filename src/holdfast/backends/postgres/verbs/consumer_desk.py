"""What people see of consumers and do to them: list, pause, resume, reset, forget, retry and drop what is parked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.backends.postgres.verbs.consumers import begin_at, heads_of, require_consumer
from holdfast.backends.postgres.verbs.transitions import Step, record
from holdfast.backends.sql.steps import rows, run, value
from holdfast.errors import ConfigError
from holdfast.model.allocation import AllocationState, Share
from holdfast.store.steps import Steps
from holdfast.store.stream_values import ConsumerView, ShareView, Start, Subscription


def consumers() -> Steps[list[ConsumerView]]:
    """List consumers with their shares."""
    known: dict[str, tuple[Subscription, bool]] = {}
    shares: dict[str, list[ShareView]] = {}
    for consumer, category, stream, paused, *share in (yield from rows("list_consumers")):
        known[consumer] = (Subscription(category, stream), paused)
        views = shares.setdefault(consumer, [])
        if share[0] is not None:
            views.append(_share_view(consumer, share))
    return [
        ConsumerView(name=name, subscription=subscription, paused=paused, shares=tuple(shares[name]))
        for name, (subscription, paused) in known.items()
    ]


def _share_view(consumer: str, row: Any) -> ShareView:
    category, partition_id, state, generation, owner, target, position, head, behind, parked, since, losses = row
    return ShareView(
        share=Share(consumer, category, partition_id),
        state=AllocationState(state),
        generation=generation,
        owner=owner,
        target=target,
        position=position,
        head=head,
        behind=None if behind is None else timedelta(microseconds=max(0, behind)),
        parked=parked,
        since=timedelta(microseconds=since),
        losses=losses,
    )


def pause(consumer: str) -> Steps[bool]:
    """Ask that nobody consumes; the lock waits for whoever is granting a share."""
    yield from require_consumer(consumer, lock=True)
    return (yield from run("pause_consumer", consumer=consumer))


def resume(consumer: str) -> Steps[bool]:
    """Let it go on."""
    yield from require_consumer(consumer, lock=True)
    return (yield from run("resume_consumer", consumer=consumer))


def _is_free(consumer: str, *, paused: bool, verb: str) -> Steps[bool]:
    if not paused:
        message = (
            f"consumer {consumer!r} is not paused: pause it before you {verb} it, so that nobody consumes meanwhile"
        )
        raise ConfigError(message)
    return not (yield from run("held_by_the_living", consumer=consumer))


def reset(consumer: str, to: Start) -> Steps[bool]:
    """Set the positions of a paused consumer; False while a living node holds a share."""
    known = yield from require_consumer(consumer, lock=True)
    if not (yield from _is_free(consumer, paused=known.paused, verb="reset")):
        return False
    yield from rows("lock_shares_of_consumer", consumer=consumer)
    shares = sorted((yield from rows("shares_to_reset", consumer=consumer)))
    if not shares:
        return True
    places = [(category, partition_id) for category, _, partition_id, *_ in shares]
    positions = yield from begin_at(places, known.stream, to)
    heads = yield from heads_of(places, known.stream)
    keys = {"category_ids": [share[1] for share in shares], "partition_ids": [share[2] for share in shares]}
    yield from run("reset_shares", consumer=consumer, **keys, position_ids=positions, heads=heads)
    yield from run("drop_parked_past", consumer=consumer, **keys, position_ids=positions)
    steps = [
        Step(consumer, category_id, partition_id, generation + 1, state, AllocationState.FREE, owner)
        for _, category_id, partition_id, state, generation, owner in shares
    ]
    yield from record(steps)
    return True


def forget(consumer: str) -> Steps[bool]:
    """Delete a paused consumer; False while a living node holds a share."""
    known = yield from require_consumer(consumer, lock=True)
    if not (yield from _is_free(consumer, paused=known.paused, verb="forget")):
        return False
    yield from rows("lock_shares_of_consumer", consumer=consumer)
    yield from run("forget_consumer", consumer=consumer)
    return True


def retry_parked(consumer: str, stream: str | None) -> Steps[int]:
    """Ask the owners to handle parked events again."""
    yield from _hold(consumer)
    count: int = yield from value("retry_parked", consumer=consumer, stream=stream)
    return count


def drop_parked(consumer: str, stream: str | None, event_id: str | None) -> Steps[int]:
    """Delete parked events."""
    yield from _hold(consumer)
    count: int = yield from value("drop_parked", consumer=consumer, stream=stream, event_id=event_id)
    return count


def _hold(consumer: str) -> Steps[None]:
    """Wait for commits that park something; those that come later wait, and see what is left."""
    yield from require_consumer(consumer, lock=True)
    yield from rows("hold_shares_of_consumer", consumer=consumer)
