"""What to do with an event whose handler failed: pure decisions.

An event is retried in place, with a growing delay, since order forbids skipping it. After `max_attempts` the consumer's
`on_error` decides. A handler that kills its node leaves no exception, but the store counts how often a share was seized
from a dead node at the same position (`losses`). A dying node loses all its shares, including those that did not cause
its death. So from `SUSPECTED` losses on, the next event of a share is put on trial: the trial is written to the store,
and then the event is handled by itself, for one such share of a process at a time. From then on a loss counts only if
it happened during a trial. After more than `MOST_TRIAL_LOSSES` losses the event counts as failed for good.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Final

import msgspec

from holdfast.model.allocation import MOST_TRIAL_LOSSES, SUSPECTED
from holdfast.model.outcome import Failure
from holdfast.model.retry import decide
from holdfast.streams.consumer import Consumer, OnError

_BLOCKED_WAIT: Final = timedelta(seconds=30)


class EventDecision(Enum):
    """What to do with the event."""

    AGAIN = "again"
    SKIP = "skip"
    PARK = "park"


class Judgement(msgspec.Struct, frozen=True):
    """The decision, the delay before the next attempt, and the problem of the retry policy, if it has one."""

    step: EventDecision
    wait: timedelta = timedelta()
    is_blocked: bool = False
    problem: str | None = None


def judge(consumer: Consumer, attempts: int, error: BaseException, *, draw: float) -> Judgement:
    """Decide what to do after a failure; `attempts` counts it, `draw` is a random number in [0, 1)."""
    decision = decide(consumer.retry, attempts, error=error, draw=draw)
    if attempts < consumer.max_attempts and decision.delay is not None:
        return Judgement(EventDecision.AGAIN, decision.delay, problem=decision.problem)
    match consumer.on_error:
        case OnError.SKIP:
            return Judgement(EventDecision.SKIP, problem=decision.problem)
        case OnError.PARK:
            return Judgement(EventDecision.PARK, problem=decision.problem)
        case OnError.BLOCK:
            wait = _BLOCKED_WAIT if decision.delay is None else min(decision.delay, _BLOCKED_WAIT)
            return Judgement(EventDecision.AGAIN, wait, is_blocked=True, problem=decision.problem)


def goes_alone(losses: int) -> bool:
    """Return whether to handle the next event by itself, because nodes died while they owned this share."""
    return losses >= SUSPECTED


def writes_trial(consumer: Consumer) -> bool:
    """Return whether a trial is written to the store: only if the event could be skipped or parked because of it."""
    return consumer.on_error is not OnError.BLOCK


def fails_for_good(consumer: Consumer, losses: int) -> bool:
    """Return whether the next event counts as failed for good: its node died each time."""
    return has_killed(losses) and consumer.on_error is not OnError.BLOCK


def has_killed(losses: int) -> bool:
    """Return whether nodes have died so often that the event on trial must be the cause.

    A parked event then stays parked, whatever `on_error` says: an operator requested the retry.
    """
    return losses > MOST_TRIAL_LOSSES


def lost_nodes(losses: int) -> Failure:
    """Return the failure of an event that killed its nodes."""
    message = f"{losses} nodes in a row died before this event was done: look for a crash, or for an out-of-memory kill"
    return Failure("NodeLost", message)
