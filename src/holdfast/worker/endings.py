"""What a worker and its child processes share at the end of an attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.errors import StoreError
from holdfast.jobs.context import Context
from holdfast.jobs.run import unless_settled
from holdfast.model.outcome import Cancelled, Outcome
from holdfast.store.backend import Backend

_logger = logging.getLogger("holdfast.worker")
_ASK_AGAIN = 0.5

CANCELLED_AS_ASKED: Final = Cancelled("cancelled while it ran, as requested")


def cancelled_by_itself() -> RuntimeError:
    """Return the error of a handler that was cancelled although the worker did not do it."""
    return RuntimeError("the handler was cancelled by its own code")


async def once_settled(context: Context | None, backend: Backend, outcome: Outcome) -> Outcome | None:
    """Return what `unless_settled` does; while the store does not answer, ask again."""
    while True:
        try:
            return await unless_settled(context, backend, outcome)
        except StoreError as error:
            _logger.warning("whether a handler's transaction has committed is unknown, retrying: %s", error)
            await asyncio.sleep(_ASK_AGAIN)
