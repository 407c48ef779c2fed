"""A connection with its own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from holdfast.backends.sqlite.connection import Connection
from holdfast.concurrency.store_threads import store_thread_name

T = TypeVar("T")


class ConnectionThread:
    """A connection and the one thread that uses it."""

    def __init__(self, connect: Callable[[], Connection], name: str) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._has_thread = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=store_thread_name(f"sqlite-{name}"))

    def _started(self) -> ThreadPoolExecutor:
        """Start the thread if it does not run yet, with an empty work item.

        If the system refuses a new thread, `submit` raises but keeps the work item queued for a later thread: a real
        item would begin a transaction after its caller has given up.
        """
        if not self._has_thread:
            self._thread.submit(lambda: None)
            self._has_thread = True
        return self._thread

    def _call(self, work: Callable[[Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        return work(self._connection)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the connection's thread.

        Cancelling the caller does not stop the work: a transaction once begun is committed or rolled back as a whole.
        """
        return await asyncio.get_running_loop().run_in_executor(self._started(), self._call, work)

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Queue `work` for the connection's thread, after earlier work."""
        return self._started().submit(self._call, work)

    def run_blocking(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the connection's thread and wait for it."""
        return self.submit(work).result()

    def interrupt(self) -> None:
        """Interrupt the running statement, if there is one."""
        if self._connection is not None:
            self._connection.raw.interrupt()

    def close(self) -> None:
        """Close the connection in its thread, then end the thread."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        self._thread.submit(close).result()
        self._thread.shutdown()
