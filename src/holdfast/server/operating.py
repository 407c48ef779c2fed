"""Carry out bulk operations in the background: those started here at once, and those abandoned by other processes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.server")
_PERIOD: Final = 10.0  # seconds: a process that ends leaves its operations to others


class Operating:
    """The background task of a server; it begins with the server or with the first operation."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look for operations now, and from time to time."""
        self._woken.set()
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Cancel the current chunk and stop; the next process repeats it."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                if self._app.is_open:  # its owner may have closed it, and no lifespan event says so
                    await self._app.operations.run_pending()
            except HoldfastError as error:
                _logger.warning("bulk operations wait: %s", error)
            except Exception:  # it must not end the others
                _logger.exception("bulk operations wait")
            with suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD):
                    await self._woken.wait()
