"""A worker inside another program: it runs for the length of an `async with` block.

```text
   enter   open the store; start the worker, and a node if the app has consumers
   block   runs; if the worker or the node breaks, it is cancelled
   exit    drain and wait; a cancellation meanwhile releases what still runs. Then raise, the first that applies:
           the error of the block (but not the cancellation from here), the error of worker or node
```
"""

from __future__ import annotations

import asyncio
import logging
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.app.run_worker import WorkerProcess, worker_process
from holdfast.app.worker_settings import WorkerSettings
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError
from holdfast.model.allocation import Timing

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.worker")
_working_in: dict[int, int] = {}
"""The process in which each app, by its `id`, works now: two nodes of one process would share a name."""


def working(app: App, settings: WorkerSettings, *, node_id: str | None, timing: Timing | None) -> Working:
    """Return the context manager; raises `ConfigError` for an invalid setting."""
    return Working(app, worker_process(app, settings, node_id, timing, owns_process=False))


class Working:
    """Runs a worker, a node or both while its block runs; entered once."""

    def __init__(self, app: App, process: WorkerProcess) -> None:
        self._app = app
        self._process = process
        self._parts: list[asyncio.Task[Any]] = []
        self._block: asyncio.Task[Any] | None = None
        self._cancelling = 0  # the cancellations of the block's task before the block
        self._has_cancelled = False
        self._is_leaving = False

    async def __aenter__(self) -> None:
        """Open the store and start; raises `StoreUnavailable` and the like before anything has started."""
        if self._block is not None:
            raise ConfigError("this app.working() was entered before: call app.working(…) again for another block")
        if _working_in.get(id(self._app)) == os.getpid():
            remedy = "leave that block first, or raise its concurrency"
            raise ConfigError(f"this app is in an app.working() block already: {remedy}")
        await self._app.opened()
        self._block = asyncio.current_task()
        self._cancelling = 0 if self._block is None else self._block.cancelling()
        _working_in[id(self._app)] = os.getpid()
        self._process.started(self._app.backend.url)
        for part in self._process.parts():
            running = asyncio.create_task(part)
            running.add_done_callback(self._part_ended)
            self._parts.append(running)

    def _part_ended(self, part: asyncio.Task[Any]) -> None:
        error = _error_of(part)
        if error is None:
            return
        _logger.critical("%s: %s", self._process.name, error, exc_info=error)
        if self._block is not None and not self._is_leaving and not self._has_cancelled:
            self._has_cancelled = True
            self._block.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain, wait for the end, and raise the error of a broken worker or node."""
        self._is_leaving = True
        is_cancelled = isinstance(error, asyncio.CancelledError)
        try:
            await self._ended()
        finally:
            del _working_in[id(self._app)]
            await uncancellable(self._process.ended())
        if self._is_cancelled_from_outside():
            raise asyncio.CancelledError
        broken = next((found for part in self._parts if (found := _error_of(part)) is not None), None)
        if broken is not None and (error is None or is_cancelled):
            raise broken from None

    async def _ended(self) -> None:
        """Drain and wait; a cancellation meanwhile releases the running jobs."""
        self._process.drain()
        while any(not part.done() for part in self._parts):
            try:
                await asyncio.wait(self._parts)
            except asyncio.CancelledError:
                self._process.drain()  # the second time: running jobs are released

    def _is_cancelled_from_outside(self) -> bool:
        """Take back the cancellation from here; return whether there is another."""
        if self._block is None:
            return False
        left = self._block.uncancel() if self._has_cancelled else self._block.cancelling()
        return left > self._cancelling


def _error_of(part: asyncio.Task[Any]) -> BaseException | None:
    return None if part.cancelled() else part.exception()
