"""The call of a consumer's handler in a child process, its effect, and the report of its end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
from functools import partial
from typing import Any, Protocol

from holdfast.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionConflict
from holdfast.hooks.middleware import HandlerCall
from holdfast.runtime.effect import EffectStage
from holdfast.runtime.failure import describe
from holdfast.runtime.threads import Threads
from holdfast.store.backend import Backend
from holdfast.streams.context import EventContext
from holdfast.streams.effect import EventEffect, StreamUnparked
from holdfast.streams.event_retry import judge
from holdfast.streams.event_runner import arguments_of_events, check_returned
from holdfast.worker.job_child.importing import RegisteredConsumer
from holdfast.worker.job_child.protocol import CompletionStage, EventEnd, EventsEnded, RunEvents

_ENDS: dict[type[BaseException], EventEnd] = {
    LeaseLost: EventEnd.LEASE_LOST,
    StreamUnparked: EventEnd.UNPARKED,
    OutcomeUnknown: EventEnd.UNKNOWN,
    TransactionConflict: EventEnd.CONFLICT,  # before its base
    StoreUnavailable: EventEnd.UNAVAILABLE,
}


class Settlements(Protocol):
    """Receives the stages of a transaction."""

    def report(self, stage: CompletionStage) -> None:
        """Report a stage, before the next begins."""
        ...


class ChildEventEffect(EventEffect):
    """An effect that reports its stages: if this process dies, the node knows whether to ask the store."""

    link: Settlements

    def committing(self) -> None:
        """Report the stage before the commit is sent."""
        super().committing()
        self.link.report(CompletionStage.SETTLING)

    def committed(self) -> None:
        """Report that the commit succeeded."""
        super().committed()
        self.link.report(CompletionStage.SETTLED)

    def interrupted(self, error: BaseException) -> None:
        """Report that nothing was committed, unless the outcome is unknown."""
        super().interrupted(error)
        if self.stage is EffectStage.OPEN:
            self.link.report(CompletionStage.UNSETTLED)


class ChildEventCall:
    """One call of a consumer's handler."""

    def __init__(self, found: RegisteredConsumer, run: RunEvents, *, link: Settlements, threads: Threads) -> None:
        self._consumer = found.consumer
        self._app = found.app
        self._run = run
        self._link = link
        self._threads = threads
        self.backend: Backend | None = None
        """The store, if the handler takes a context; otherwise this process needs no connection."""
        self.is_clean = True
        """Whether it left nothing behind that could affect the next call."""

    def run(self, runner: asyncio.Runner) -> EventsEnded:
        """Run the handler; its context variables end with it."""
        return runner.run(self._run_in_loop(), context=contextvars.copy_context())

    async def _run_in_loop(self) -> EventsEnded:
        consumer, run = self._consumer, self._run
        try:
            arguments = arguments_of_events(consumer, run.events, run.replayed)
            if consumer.takes_context:
                self.backend = self._app.backend
                await self.backend.open()
                effect = ChildEventEffect(self.backend, run.grant, run.commit, run.limit)
                effect.link = self._link
                arguments.append(EventContext(effect, run.attempt))
            check_returned(consumer.name, await self._call(arguments))
        except BaseException as error:  # noqa: BLE001 - every end of a handler is reported, SystemExit too
            return self._failed(error)
        return EventsEnded(EventEnd.DONE, clean=self.is_clean)

    async def _call(self, arguments: list[Any]) -> object:
        run, middleware = partial(self._consumer.handler, *arguments), self._app.hooks.middleware
        call = HandlerCall(
            "consumer", self._consumer.name, self._run.attempt, arguments, events=tuple(self._run.events)
        )
        if not inspect.iscoroutinefunction(self._consumer.handler):
            return await middleware.around_thread(call, run, self._threads.run)
        before = asyncio.all_tasks()
        try:
            return await (middleware.around(call, run) if middleware else run())
        finally:
            if asyncio.all_tasks() - before:
                self.is_clean = False

    def _failed(self, error: BaseException) -> EventsEnded:
        if isinstance(error, MemoryError):
            self.is_clean = False
        end = next((end for kind, end in _ENDS.items() if isinstance(error, kind)), EventEnd.FAILED)
        judgement = None
        if end is EventEnd.FAILED:
            judgement = judge(self._consumer, self._run.attempt, error, draw=random.random())  # noqa: S311 - jitter
        return EventsEnded(end, describe(error), judgement, clean=self.is_clean)
