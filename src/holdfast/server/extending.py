"""Extend leases, many at once: through the store's blocking connection for that, in one thread of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreError
from holdfast.model.job import Lease
from holdfast.store.jobs import Extender
from holdfast.store.values import Extension

if TYPE_CHECKING:
    from holdfast.server.state import ServerState

T = TypeVar("T")


class Extending:
    """The extending thread of a server; it begins with the first call."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._thread: ThreadPoolExecutor | None = None
        self._extender: Extender | None = None

    async def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases to `duration` from now."""
        return await self._run(lambda extender: extender.extend(leases, duration))

    async def _run(self, work: Callable[[Extender], T]) -> T:
        backend = await self._state.opened()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=store_thread_name("server"))

        def call() -> T:
            if self._extender is None:
                self._extender = backend.extender()
            try:
                return work(self._extender)
            except StoreError:
                self._forget()  # the next call connects again
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _forget(self) -> None:
        extender, self._extender = self._extender, None
        if extender is not None:
            extender.close()

    async def close(self) -> None:
        """Close the connection and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._forget)
            thread.shutdown(wait=False)
