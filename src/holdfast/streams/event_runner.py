"""Runs a consumer's handler: the attempts at one event, or at a batch.

A handler is interrupted when the drain deadline has passed, the grant is stale, or the node is no longer certain that
it owns the share. An async handler is cancelled; one in a thread can check `ctx.lease_lost`. If a handler has noticed
the interruption and ends, whether it returns or raises, its event counts as handled only if it was committed. Otherwise
the event is neither done nor failed, and the next owner handles it. A thread that never checked the signal and returned
has handled its event.

If the outcome of a commit is unknown when the handler ends, no other attempt follows here: the share continues from the
position in the store.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.errors import ConfigError, OutcomeUnknown, StoreUnavailable, TransactionConflict
from holdfast.hooks.middleware import HandlerCall
from holdfast.hooks.observers import Hooks
from holdfast.model.allocation import Grant
from holdfast.model.event import StoredEvent
from holdfast.model.isolation import MAX_CONFLICTS, pause_after_conflict
from holdfast.model.outcome import Failure
from holdfast.runtime.executor import Executor
from holdfast.runtime.failure import describe
from holdfast.runtime.handler_checks import undone_reason
from holdfast.runtime.handler_runner import HandlerRunner, TimeLimitReached
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, ParkedEvent
from holdfast.streams.consumer import Consumer, OnError
from holdfast.streams.context import EventContext
from holdfast.streams.effect import EventEffect
from holdfast.streams.event import Event
from holdfast.streams.event_retry import EventDecision, Judgement, judge
from holdfast.streams.handler_process import HandlerProcesses, ProcessHandlerError
from holdfast.streams.handling import INTERRUPTED, OwnershipUncertain, Stopped, reported
from holdfast.streams.progress import ShareProgress

_logger = logging.getLogger("holdfast.streams")
Pause = Callable[[float], Awaitable[bool]]
_STORE_WAIT = 0.2
_valued: set[str] = set()  # consumers whose handlers return values; each is logged once
_UNKNOWN: Final = "the handler has ended, but the outcome of its transaction is unknown"


def check_returned(consumer: str, value: object) -> None:
    """Raise `ConfigError` if the handler's work is unfinished; log a value: it is not stored, events have no result."""
    reason = undone_reason(value)
    if reason is not None:
        raise ConfigError(f"consumer {consumer!r} {reason}")
    if value is not None and consumer not in _valued:
        _valued.add(consumer)
        _logger.warning(
            "consumer %s: the %s that its handler returned is not stored, because an event has no result: write it in "
            "ctx.transaction(), and return nothing (logged once per consumer)",
            consumer, type(value).__name__,
        )  # fmt: skip


class ParkedRetry(msgspec.Struct, frozen=True):
    """The result of another attempt at a parked event: a commit, which its handler may already have made."""

    commit: Commit
    is_committed: bool = False


class _Failures(msgspec.Struct):
    """How often the same events have failed in a row on this node, and whether they block their partition.

    `conflicts` counts the conflicts of their transactions since the last failure.
    """

    count: int = 0
    conflicts: int = 0
    is_blocked: bool = False


class EventRunner:
    """Calls the handler of one consumer for the events of one share, as long as `may_handle` allows it."""

    def __init__(
        self,
        consumer: Consumer,
        grant: Grant,
        backend: Backend,
        *,
        handlers: HandlerRunner[Grant],
        limit: timedelta,
        may_handle: Callable[[], bool],
        processes: HandlerProcesses | None,
        hooks: Hooks,
    ) -> None:
        self._consumer = consumer
        self._grant = grant
        self._backend = backend
        self._handlers = handlers
        self._limit = limit
        self._may_handle = may_handle
        self._processes = processes
        self._hooks = hooks
        self._effect: EventEffect | None = None
        self._running: asyncio.Task[Any] | None = None
        self._is_abandoned = False
        self._is_interrupted = False
        self._is_cancelled = False

    def abandon(self) -> None:
        """Signal to the handler that the share is lost, and cancel it where that is possible."""
        self._is_abandoned = True
        self._end_attempt()

    def interrupt(self) -> None:
        """Do the same as `abandon`, because the share may be lost; wait for a handler that cannot be cancelled."""
        if self._running is not None:
            self._is_interrupted = True
            self._end_attempt()

    def _end_attempt(self) -> None:
        if self._effect is not None:
            self._effect.lease_lost.set()
        if self._running is not None and self._consumer.executor is not Executor.THREAD:
            self._is_cancelled = True
            self._running.cancel()

    async def handle(
        self, events: Sequence[StoredEvent], progress: ShareProgress, replay_until: int, pause: Pause
    ) -> None:
        """Handle events in order until each is done, skipped or parked.

        Raises `LeaseLost`, `Stopped` and `OwnershipUncertain`.
        """
        if not progress.parked:
            await self._handle_free(list(events), progress, replay_until, pause)
            return
        free: list[StoredEvent] = []
        for event in events:
            if progress.follows_parked(event):
                if free:
                    await self._handle_free(free, progress, replay_until, pause)
                    free = []
                progress.park(event)
            else:
                free.append(event)
        if free:
            await self._handle_free(free, progress, replay_until, pause)

    async def _handle_free(
        self, events: list[StoredEvent], progress: ShareProgress, replay_until: int, pause: Pause
    ) -> None:
        """Repeat until the handler succeeds or `on_error` applies. A batch that failed once is handled one by one."""
        failures = _Failures()
        while True:
            effect = self._begin(progress.commit_up_to(events[-1]))
            try:
                await self._call(effect, events, replay_until, progress, failures.count + 1)
            except INTERRUPTED:
                raise
            except Exception as error:
                if not effect.is_committed:
                    if await self._is_of_the_store(error, events, failures, pause):
                        continue
                    failures.count += 1
                    if await self._is_done_with(events, progress, replay_until, error, failures, pause):
                        return
                    continue
                _logger.exception("%s: effect and position of %r were committed, then it raised", *self._of(events))
            self._note(effect, events, progress)
            return

    async def _is_of_the_store(
        self, error: Exception, events: Sequence[StoredEvent], failures: _Failures, pause: Pause
    ) -> bool:
        """Return whether the failure is the store's, not the event's; if so, wait until it may be handled again."""
        wait = _STORE_WAIT
        if isinstance(error, TransactionConflict):
            failures.conflicts += 1
            if failures.conflicts > MAX_CONFLICTS:
                failures.conflicts = 0
                return False
            wait = pause_after_conflict(failures.conflicts, random.random())  # noqa: S311 - jitter
            _logger.debug("%s: the transaction of %r conflicted, repeating it: %s", *self._of(events), error)
        elif isinstance(error, StoreUnavailable):
            what = "%s: the store failed while %r was handled, retrying: %s"
            _logger.warning(what, self._name, Event(events[0]), error)
        else:
            return False
        await self._wait(pause, wait)
        return True

    async def retry(self, parked: ParkedEvent, progress: ShareProgress) -> ParkedRetry:
        """Handle a parked event once more; raises the same exceptions as `handle`."""
        place = progress.place(parked.event)
        effect = self._begin(progress.commit_unparked(place, None, 1))
        try:
            await self._call(effect, [parked.event], 0, progress, parked.attempts + 1)
        except (*INTERRUPTED, StoreUnavailable):
            raise
        except Exception as error:
            if not effect.is_committed:
                _logger.warning("%s: parked %r failed again: %r", self._name, Event(parked.event), error)
                return ParkedRetry(progress.commit_unparked(place, failure_of(error), 1))
            _logger.exception("%s: effect and position of %r were committed, then it raised", *self._of([parked.event]))
        return ParkedRetry(effect.commit, is_committed=effect.is_committed)

    def give_up(
        self,
        event: StoredEvent,
        progress: ShareProgress,
        failure: Failure,
        *,
        attempts: int,
        error: BaseException | None = None,
    ) -> None:
        """Skip or park an event, according to `on_error`; the log shows where `error` was raised."""
        what = "parked, with the later events of its stream," if self._consumer.on_error is OnError.PARK else "skipped"
        _logger.error(
            "%s: %r is %s after %d attempts: %s: %s",
            self._name, Event(event), what, attempts, failure.error_class, failure.message, exc_info=error,
        )  # fmt: skip
        if self._consumer.on_error is OnError.PARK:
            progress.park(event, failure, attempts)
        else:
            progress.passed(event)

    @property
    def _name(self) -> str:
        return f"consumer {self._consumer.name}"

    def _of(self, events: Sequence[StoredEvent]) -> tuple[str, Event]:
        return self._name, Event(events[-1])

    async def _is_done_with(
        self,
        events: list[StoredEvent],
        progress: ShareProgress,
        replay_until: int,
        error: Exception,
        failures: _Failures,
        pause: Pause,
    ) -> bool:
        """Decide after a failure; True if the events are done, False if they are to be handled again."""
        if len(events) > 1:
            _logger.warning(
                "%s: a batch of %d events failed, handling them one by one: %r",
                self._name, len(events), error, exc_info=error,
            )  # fmt: skip
            for one in events:
                await self.handle([one], progress, replay_until, pause)
            return True
        (event,) = events
        judgement = _judgement_of(error) or judge(self._consumer, failures.count, error, draw=random.random())  # noqa: S311
        if judgement.problem is not None:
            _logger.error("%s: %s", self._name, judgement.problem)
        if judgement.step is not EventDecision.AGAIN:
            self.give_up(event, progress, failure_of(error), attempts=failures.count, error=error)
            return True
        self._log_failure(event, error, failures, judgement)
        failures.is_blocked = judgement.is_blocked
        await self._wait(pause, judgement.wait.total_seconds())
        return False

    def _log_failure(self, event: StoredEvent, error: Exception, failures: _Failures, judgement: Judgement) -> None:
        """Log a failure; with a traceback only the first time and when it begins to block: it may repeat for days."""
        is_new = failures.count == 1 or (judgement.is_blocked and not failures.is_blocked)
        _logger.log(
            logging.ERROR if judgement.is_blocked else logging.WARNING,
            "%s: %r %s (attempt %d), retrying in %.1f s: %r",
            self._name,
            Event(event),
            "blocks its partition" if judgement.is_blocked else "failed",
            failures.count,
            judgement.wait.total_seconds(),
            error,
            exc_info=error if is_new else None,
        )

    async def _wait(self, pause: Pause, seconds: float) -> None:
        """Wait between two attempts; return early if the share consumer is to end."""
        if await pause(seconds):
            raise Stopped

    def _begin(self, commit: Commit) -> EventEffect:
        if self._is_abandoned:
            raise Stopped
        if not self._may_handle():
            raise OwnershipUncertain
        self._effect = EventEffect(self._backend, self._grant, commit, self._limit)
        return self._effect

    def _note(self, effect: EventEffect, events: Sequence[StoredEvent], progress: ShareProgress) -> None:
        progress.passed(events[-1], len(events))
        if effect.is_committed:
            progress.committed_to(effect.commit.position)

    async def _call(
        self,
        effect: EventEffect,
        events: Sequence[StoredEvent],
        replay_until: int,
        progress: ShareProgress,
        attempt: int,
    ) -> None:
        is_again = progress.place(events[0]) <= replay_until
        replayed = [progress.place(event) <= replay_until for event in events] if is_again else []
        work = self._run_known(effect, self._run(effect, events, replayed, attempt))
        if self._hooks.event_start.observers or self._hooks.event_end.observers:
            work = reported(self._hooks, self._consumer.name, events, attempt, work)
        await work

    async def _run_known(self, effect: EventEffect, run: Coroutine[Any, Any, None]) -> None:
        """Run to the end; raises `OutcomeUnknown` if the outcome of the handler's transaction is."""
        try:
            await self._run_to_end(effect, run)
        except INTERRUPTED:
            raise
        except Exception as error:
            if effect.is_unknown:
                raise OutcomeUnknown(_UNKNOWN) from error
            raise
        if effect.is_unknown:
            raise OutcomeUnknown(_UNKNOWN)

    async def _run_to_end(self, effect: EventEffect, work: Coroutine[Any, Any, None]) -> None:
        running = self._running = asyncio.current_task()
        assert running is not None  # noqa: S101 - a handler is called in a task
        self._is_interrupted = self._is_cancelled = False
        try:
            await work
        except (asyncio.CancelledError, Exception) as error:
            await effect.find_out()
            if not self._knows_interruption(effect):
                if isinstance(error, asyncio.CancelledError) and not running.cancelling():
                    raise RuntimeError("the handler was cancelled by its own code") from None
                raise
        finally:
            self._running = None
            if self._is_cancelled:
                running.uncancel()
        if self._knows_interruption(effect) and not effect.is_committed:
            raise Stopped if self._is_abandoned else OwnershipUncertain
        await effect.find_out()

    async def _run(
        self, effect: EventEffect, events: Sequence[StoredEvent], replayed: Sequence[bool], attempt: int
    ) -> None:
        """Call the handler; `TimeLimitReached` if it is async and late, `ConfigError` if its work is unfinished."""
        if self._processes is not None and self._consumer.executor is Executor.PROCESS:
            await self._processes.run(self._consumer, events, replayed=replayed, effect=effect, attempt=attempt)
            return
        arguments = arguments_of_events(self._consumer, events, replayed)
        if self._consumer.takes_context:
            arguments.append(EventContext(effect, attempt))
        run, middleware = partial(self._consumer.handler, *arguments), self._hooks.middleware
        call = None
        if middleware:
            call = HandlerCall("consumer", self._consumer.name, attempt, arguments, events=tuple(events))
        if self._consumer.is_async:
            timeout = self._consumer.timeout
            limit = None if timeout is None else timeout.total_seconds()
            run = run if call is None else partial(middleware.around, call, run)
            value = await self._handlers.in_loop(run, self._grant, self, limit)
        else:
            start = partial(self._handlers.in_thread, subject=self._grant, key=self)
            value = await (start(run) if call is None else middleware.around_thread(call, run, start))
        check_returned(self._consumer.name, value)

    def _knows_interruption(self, effect: EventEffect) -> bool:
        """Whether the handler was interrupted and has noticed it."""
        return (self._is_abandoned or self._is_interrupted) and (self._is_cancelled or effect.lease_lost.was_seen)


def arguments_of_events(consumer: Consumer, events: Sequence[StoredEvent], replayed: Sequence[bool]) -> list[Any]:
    """Return the first argument of a handler: the list of events, or the only one; `replayed` is empty if none is."""
    if replayed:
        seen = [Event(event, is_replayed=again) for event, again in zip(events, replayed, strict=True)]
    else:
        seen = list(map(Event, events))
    return [seen if consumer.takes_batch else seen[0]]


def failure_of(error: BaseException) -> Failure:
    """Return the description of an error; a child process may have made it."""
    if isinstance(error, ProcessHandlerError):
        return error.failure
    failure = describe(error)
    return msgspec.structs.replace(failure, error_class="TimeLimit") if isinstance(error, TimeLimitReached) else failure


def _judgement_of(error: BaseException) -> Judgement | None:
    return error.judgement if isinstance(error, ProcessHandlerError) else None
