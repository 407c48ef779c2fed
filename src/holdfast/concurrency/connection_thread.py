"""A connection with its own thread: for drivers that block, in programs that must not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from holdfast.concurrency.store_threads import store_thread_name


class Closing(Protocol):
    """Something that can be closed."""

    def close(self) -> None:
        """Close it."""
        ...


T = TypeVar("T")
C = TypeVar("C", bound=Closing)


class ConnectionThread(Generic[C]):
    """A connection and the one thread that uses it; both are made at the first use."""

    def __init__(self, connect: Callable[[], C], name: str) -> None:
        self._connect = connect
        self.connection: C | None = None
        self._has_thread = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=store_thread_name(name))

    def _started(self) -> ThreadPoolExecutor:
        """Start the thread if it does not run yet, with an empty work item.

        If the system refuses a new thread, `submit` raises but keeps the work item queued for a later thread: a real
        item would begin a transaction after its caller has given up.
        """
        if not self._has_thread:
            self._thread.submit(lambda: None)
            self._has_thread = True
        return self._thread

    def _call(self, work: Callable[[C], T]) -> T:
        if self.connection is None:
            self.connection = self._connect()
        return work(self.connection)

    async def run(self, work: Callable[[C], T]) -> T:
        """Run `work` in the connection's thread.

        Cancelling the caller does not stop the work: a transaction once begun is committed or rolled back as a whole.
        """
        return await asyncio.get_running_loop().run_in_executor(self._started(), self._call, work)

    def submit(self, work: Callable[[C], T]) -> Future[T]:
        """Queue `work` for the connection's thread, after earlier work."""
        return self._started().submit(self._call, work)

    def run_blocking(self, work: Callable[[C], T]) -> T:
        """Run `work` in the connection's thread and wait for it."""
        return self.submit(work).result()

    def close(self) -> None:
        """Close the connection in its thread, then end the thread."""

        def close() -> None:
            if self.connection is not None:
                self.connection.close()
                self.connection = None

        self._thread.submit(close).result()
        self._thread.shutdown()


class ConnectionThreads(Generic[C]):
    """Connections with their threads for users of one at a time; those that were put back are used again."""

    def __init__(self, new: Callable[[], ConnectionThread[C]]) -> None:
        self._new = new
        self._idle: list[ConnectionThread[C]] = []
        self._is_closed = False
        self._closing = threading.Lock()

    def take(self) -> ConnectionThread[C]:
        """Return a connection that no other user has."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new()

    def put_back(self, session: ConnectionThread[C]) -> None:
        """Keep a connection for its next user, or close it if all are closed."""
        with self._closing:
            if not self._is_closed:
                self._idle.append(session)
                return
        session.submit(lambda connection: connection.close())  # do not wait: this may be the connection's thread

    def close(self) -> None:
        """Close the idle connections now, the others when they are put back."""
        with self._closing:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
