"""How the handling of events ends other than by success or failure, and the report of each call of a handler."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionConflict
from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import HandlingEnd, HandlingEndWord, HandlingStart
from holdfast.model.event import StoredEvent
from holdfast.streams.effect import StreamUnparked


class Stopped(Exception):  # noqa: N818
    """The share consumer was asked to end between two attempts: the event is neither done nor failed."""


class OwnershipUncertain(Exception):  # noqa: N818
    """The node is not certain that it owns the share: continue after the committed position once it is."""


INTERRUPTED: Final = (LeaseLost, StreamUnparked, Stopped, OwnershipUncertain, OutcomeUnknown)
"""What ends the handling of events that are neither done nor failed."""


async def reported(
    hooks: Hooks, consumer: str, events: Sequence[StoredEvent], attempt: int, work: Coroutine[Any, Any, None]
) -> None:
    """Run the call of a handler, and report its start and its end."""
    shown, began = tuple(events), time.monotonic()
    hooks.event_start.emit(HandlingStart(consumer, shown, attempt))
    outcome: HandlingEndWord = "interrupted"
    error: Exception | None = None
    try:
        await work
        outcome = "done"
    except (*INTERRUPTED, TransactionConflict, StoreUnavailable):
        raise
    except Exception as raised:
        outcome, error = "failed", raised
        raise
    finally:
        duration = timedelta(seconds=time.monotonic() - began)
        hooks.event_end.emit(HandlingEnd(consumer, shown, attempt, outcome, duration, error))
