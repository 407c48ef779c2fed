"""Runs handlers of consumers in child processes, for a node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionConflict
from holdfast.model.event import StoredEvent
from holdfast.model.outcome import Failure
from holdfast.runtime.effect import EffectStage
from holdfast.runtime.failure import describe_reason
from holdfast.runtime.handler_runner import TimeLimitReached
from holdfast.streams.consumer import Consumer
from holdfast.streams.effect import EventEffect, StreamUnparked
from holdfast.streams.handler_process import ProcessHandlerError
from holdfast.worker.job_child.pool import ChildNotStarted, ChildPool, HandlerNotFound
from holdfast.worker.job_child.process import Gone
from holdfast.worker.job_child.protocol import CompletionStage, EventEnd, EventsEnded, RunEvents

_logger = logging.getLogger("holdfast.streams")
_START_AGAIN: Final = 5.0
_MOST: Final = 16  # children at once; further shares wait for one
_NO_LEASE: Final = timedelta()  # only jobs have a lease


class EventChildren:
    """`HandlerProcesses` over a pool of children."""

    def __init__(self, pool: ChildPool) -> None:
        self._pool = pool

    async def run(
        self,
        consumer: Consumer,
        events: Sequence[StoredEvent],
        *,
        replayed: Sequence[bool],
        effect: EventEffect,
        attempt: int,
    ) -> None:
        """Run the handler in a child; a child that cannot be started does not count as an attempt."""
        if consumer.reference is None:
            message = f"consumer {consumer.name!r} has no name in a module"  # rejected at registration
            raise ConfigError(message)
        message_to_child = RunEvents(
            *consumer.reference,
            consumer=consumer.name,
            events=list(events),
            replayed=list(replayed),
            grant=effect.grant,
            commit=effect.commit,
            limit=effect.limit,
            attempt=attempt,
        )
        timeout = None if consumer.timeout is None else consumer.timeout.total_seconds()

        def settlement(stage: CompletionStage) -> None:
            effect.stage = _STAGES[stage]

        while True:
            try:
                last = await self._pool.call(message_to_child, timeout=timeout, settlement=settlement)
            except HandlerNotFound as error:
                raise ProcessHandlerError(describe_reason("ConfigError", str(error))) from None
            except (ChildNotStarted, OSError) as error:
                _logger.warning("consumer %s needs a child process, but %s", consumer.name, error)
                await asyncio.sleep(_START_AGAIN)
                continue
            break
        match last:
            case EventsEnded():
                _raise(last)
            case Gone() as gone:
                text = f"the child process {gone} while it handled this event"
                raise ProcessHandlerError(describe_reason("WorkerLost", text))
            case _:
                raise TimeLimitReached(timeout or 0.0)

    async def close(self) -> None:
        """End all children."""
        await self._pool.close()


def event_children(store: str | None) -> EventChildren:
    """Return the children of a node; `store` is the full URL of its store."""
    return EventChildren(ChildPool(lease=_NO_LEASE, limit=_MOST, store=store))


_STAGES: Final = {
    CompletionStage.SETTLING: EffectStage.COMMITTING,
    CompletionStage.SETTLED: EffectStage.COMMITTED,
    CompletionStage.UNSETTLED: EffectStage.OPEN,
}


def _raise(ended: EventsEnded) -> None:
    failure = ended.failure or Failure("", "")
    match ended.end:
        case EventEnd.DONE:
            return
        case EventEnd.LEASE_LOST:
            raise LeaseLost(failure.message)
        case EventEnd.UNPARKED:
            raise StreamUnparked
        case EventEnd.UNKNOWN:
            raise OutcomeUnknown(failure.message)
        case EventEnd.UNAVAILABLE:
            raise StoreUnavailable(failure.message)
        case EventEnd.CONFLICT:
            raise TransactionConflict(failure.message)
        case EventEnd.FAILED:
            raise ProcessHandlerError(failure, ended.judgement)
