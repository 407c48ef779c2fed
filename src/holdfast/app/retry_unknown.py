"""Repeat a write whose outcome is unknown, or that an outage prevented, where that is safe.

Jobs and events have ids that are generated before the first attempt. When a server's reply to a commit is lost, the
same call shows what happened: existing rows are not written again. It shows nothing where the commit itself failed to
reach the disk, as on SQLite: there the caller gets `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.store.backend import Backend

T = TypeVar("T")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_logger = logging.getLogger("holdfast.jobs")


async def repeat_unknown(backend: Backend, unknown: OutcomeUnknown, write: Callable[[], Awaitable[T]]) -> T:
    """Write once more if that shows the outcome of the first write; otherwise raise `unknown`."""
    if not backend.capabilities.repeat_shows_outcome or not unknown.is_repeatable:
        raise unknown
    try:
        return await write()
    except StoreError as error:  # the first write may have been committed, whatever happened to the second
        raise unknown from error


async def repeat_through_outage(backend: Backend, write: Callable[[], Awaitable[T]], patience: float) -> T:
    """Repeat a write with the same ids while the store cannot be reached, at most `patience` seconds long.

    Then the last error is raised; `OutcomeUnknown` if one of the writes may have been committed.
    """
    until = time.monotonic() + patience
    pause = _FIRST_PAUSE
    unknown: OutcomeUnknown | None = None
    last: StoreError
    while True:
        try:
            return await write()
        except OutcomeUnknown as error:
            if not backend.capabilities.repeat_shows_outcome:
                raise
            unknown, last = unknown or error, error
        except StoreUnavailable as error:
            last = error
        left = until - time.monotonic()
        if left <= 0:
            if unknown is None or unknown is last:
                raise last
            raise unknown from last
        if pause == _FIRST_PAUSE:
            _logger.warning("the store cannot be reached, an enqueue waits up to %.0f s for it: %s", left, last)
        await asyncio.sleep(min(left, pause * (0.5 + random.random())))  # noqa: S311 - jitter, not a secret
        pause = min(_LONGEST_PAUSE, pause * 2)
