"""The port through which a node runs handlers with `executor="process"`; `worker.job_child` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.event import StoredEvent
from holdfast.model.outcome import Failure
from holdfast.streams.consumer import Consumer
from holdfast.streams.effect import EventEffect
from holdfast.streams.event_retry import Judgement


class HandlerProcesses(Protocol):
    """Runs handlers of consumers in child processes."""

    async def run(
        self,
        consumer: Consumer,
        events: Sequence[StoredEvent],
        *,
        replayed: Sequence[bool],
        effect: EventEffect,
        attempt: int,
    ) -> None:
        """Run the handler; raise its Holdfast exception, or `ProcessHandlerError`. Cancelling kills the process.

        `effect` records the stages of the handler's transaction.
        """
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class ProcessHandlerError(Exception):
    """A handler failed in a child process, or the process died; the child may already have judged the failure."""

    def __init__(self, failure: Failure, judgement: Judgement | None = None) -> None:
        super().__init__(f"{failure.error_class}: {failure.message}")
        self.failure = failure
        self.judgement = judgement
        if failure.traceback:
            self.add_note(failure.traceback)
