"""Connections with a thread each."""

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
        """Start the thread, if need be, with nothing to do.

        Where the system refuses a thread, `submit` raises and yet keeps the work for the next thread to come: a
        transaction would then be begun that nobody knows of.
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
        """Do `work` in the session's thread.

        A caller that is cancelled meanwhile does not stop the work: what was begun is committed or rolled back whole.
        """
        return await asyncio.get_running_loop().run_in_executor(self._started(), self._call, work)

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Have `work` done in the session's thread, after what it was asked before."""
        return self._started().submit(self._call, work)

    def run_blocking(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in the session's thread and wait for it."""
        return self.submit(work).result()

    def interrupt(self) -> None:
        """Break off the statement that runs, if one does."""
        if self._connection is not None:
            self._connection.raw.interrupt()

    def close(self) -> None:
        """Close the connection in its own thread, and end the thread."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        self._thread.submit(close).result()
        self._thread.shutdown()

    def abandon(self) -> None:
        """In a forked child: forget the parent's connection without closing it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
