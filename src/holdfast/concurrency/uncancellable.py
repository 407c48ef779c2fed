"""Run a coroutine to completion even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uncancellable(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to completion and return its result.

    A cancellation of the caller, once or repeatedly, takes effect after `work` has ended. An exception that `work`
    raised by then becomes the cause of the `CancelledError`.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())
