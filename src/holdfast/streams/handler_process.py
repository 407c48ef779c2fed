"""How a node runs the handler of a consumer with `executor="process"`; the processes themselves are the worker's."""

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
        """Run the handler; raise what it raised of ours, else `ProcessHandlerError`. Cancelling kills the process.

        `effect` follows the stages of the handler's transaction.
        """
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class ProcessHandlerError(Exception):
    """A handler failed in a child process, or with it; the decision about another attempt may be made there."""

    def __init__(self, failure: Failure, judgement: Judgement | None = None) -> None:
        super().__init__(f"{failure.error_class}: {failure.message}")
        self.failure = failure
        self.judgement = judgement
        if failure.traceback:
            self.add_note(failure.traceback)
