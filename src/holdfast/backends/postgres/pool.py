"""Connections kept for the next who needs one, within a bound.

No thread and no task stands behind it: a connection is opened when one is needed, so an outage is told at once with its
reason, and the first request after it finds the server again. A broken connection is dropped, never handed on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from holdfast.backends.postgres.connecting import connect, connect_blocking, drop, has_gone, is_idle
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.errors import StoreUnavailable

T = TypeVar("T")
_TIMEOUT = 30.0


def _exhausted(location: PostgresLocation, whose: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{location.url}: all connections for {whose} ({location.pool}) have been in use for {_TIMEOUT:g} s: "
        "keep transactions short, or set pool= in the URL higher"
    )


@contextmanager
def _as_it_was(connection: Any) -> Generator[None]:
    """Undo, in the end, what a handler sets on the connection that it is lent; what it tells the server stays."""
    kept = connection.row_factory, connection.cursor_factory, connection.prepare_threshold
    try:
        yield
    finally:
        connection.row_factory, connection.cursor_factory, connection.prepare_threshold = kept


class AsyncPool:
    """The connections of one event loop; `lost` is called whenever one has broken, or is suspected to have."""

    def __init__(self, location: PostgresLocation, *, for_verbs: bool, lost: Callable[[], None] = lambda: None) -> None:
        self._location = location
        self._for_verbs = for_verbs
        self._lost = lost
        self._idle: list[AsyncConnection[Any]] = []
        self._slots = asyncio.Semaphore(location.pool)
        self.is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[AsyncConnection[Any]]:
        """Lend a connection that is between transactions; one that comes back otherwise is dropped."""
        connection = await self.take()
        try:
            with _as_it_was(connection):
                yield connection
        finally:
            self.give_back(connection)

    async def take(self) -> AsyncConnection[Any]:
        """Lend a connection until `give_back`, for those who do so often."""
        if self._slots.locked():
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self._slots.acquire()
            except TimeoutError:
                whose = "calls" if self._for_verbs else "transactions of async handlers"
                raise _exhausted(self._location, f"{whose} in one event loop") from None
        else:
            await self._slots.acquire()
        try:
            return self._next() or await connect(self._location, for_verbs=self._for_verbs)
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: AsyncConnection[Any]) -> None:
        """Take a connection back."""
        if connection.closed:
            self._lost()
        if is_idle(connection) and not self.is_closed:
            self._idle.append(connection)
        else:
            drop(connection)
        self._slots.release()

    def _next(self) -> AsyncConnection[Any] | None:
        while (connection := _popped(self._idle)) is not None:
            if not has_gone(connection):
                return connection
            self._lost()
            drop(connection)
        return None

    def weed(self) -> None:
        """Close idle connections that have broken, up to the first that is whole: the one to be lent next."""
        connection = self._next()
        if connection is not None:
            self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close what lies idle; from any thread."""
        self._lost()
        while (connection := _popped(self._idle)) is not None:
            drop(connection)


def _popped(idle: list[T]) -> T | None:
    """Return the last, if there is one: a thread whose connection broke may empty the list at any time."""
    try:
        return idle.pop()
    except IndexError:
        return None


class AsyncPools:
    """A pool for each event loop that asks: a connection belongs to the loop that opened it.

    `for_verbs`: only our own statements run on its connections, so they are planned as suits those.
    """

    def __init__(self, location: PostgresLocation, *, for_verbs: bool = False) -> None:
        self._location = location
        self._for_verbs = for_verbs
        self._pools: dict[asyncio.AbstractEventLoop, AsyncPool] = {}
        self.losses = 0
        """Grows whenever a connection has broken: what was learnt through it may be true no longer."""

    @property
    def here(self) -> AsyncPool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._forget_ended_loops()
            pool = self._pools[loop] = AsyncPool(self._location, for_verbs=self._for_verbs, lost=self.lose)
        return pool

    def lose(self) -> None:
        """Take note that a connection has broken, or leads to something else."""
        self.losses += 1

    def _forget_ended_loops(self) -> None:
        for loop, pool in list(self._pools.items()):
            if loop.is_closed():
                self._pools.pop(loop, None)
                pool.drop_idle()

    def drop_idle(self) -> None:
        """Close what lies idle in any of them; from any thread."""
        self.lose()
        for pool in list(self._pools.values()):
            pool.drop_idle()

    def close(self) -> None:
        """Close what lies idle, and what is lent as it comes back."""
        for pool in list(self._pools.values()):
            pool.is_closed = True
        self.drop_idle()


class BlockingPool:
    """The connections of handlers in threads."""

    def __init__(self, location: PostgresLocation) -> None:
        self._location = location
        self._idle: list[Connection[Any]] = []
        self._slots = threading.Semaphore(location.pool)
        self._is_closed = False

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """Lend a connection that is between transactions; one that comes back otherwise is dropped."""
        if not self._slots.acquire(timeout=_TIMEOUT):
            raise _exhausted(self._location, "transactions of handlers in threads")
        try:
            connection = self._next() or connect_blocking(self._location)
            try:
                with _as_it_was(connection):
                    yield connection
            finally:
                if is_idle(connection) and not self._is_closed:
                    self._idle.append(connection)
                else:
                    drop(connection)
        finally:
            self._slots.release()

    def _next(self) -> Connection[Any] | None:
        while (connection := _popped(self._idle)) is not None:
            if not has_gone(connection):
                return connection
            drop(connection)
        return None

    def drop_idle(self) -> None:
        """Close what lies idle; from any thread."""
        while (connection := _popped(self._idle)) is not None:
            drop(connection)

    def close(self) -> None:
        """Close what lies idle, and what is lent as it comes back."""
        self._is_closed = True
        self.drop_idle()
