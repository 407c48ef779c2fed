"""Connections kept for the next who needs one, within a bound.

No thread and no task stands behind it: a connection is opened when one is needed, so an outage is told at once with its
reason, and the first request after it finds the server again. A broken connection is dropped, never handed on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from holdfast.backends.postgres.connecting import connect, connect_blocking, drop, has_gone, is_idle
from holdfast.backends.postgres.location import Location
from holdfast.errors import StoreUnavailable

_PATIENCE = 30.0


def _exhausted(location: Location) -> StoreUnavailable:
    return StoreUnavailable(
        f"{location.url}: all {location.pool} connections of this process have been in use for {_PATIENCE:g} s: "
        "keep transactions short, or set pool= in the URL higher"
    )


class AsyncPool:
    """The connections of one event loop."""

    def __init__(self, location: Location, *, for_verbs: bool) -> None:
        self._location = location
        self._for_verbs = for_verbs
        self._idle: list[AsyncConnection[Any]] = []
        self._slots = asyncio.Semaphore(location.pool)
        self.is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[AsyncConnection[Any]]:
        """Lend a connection that is between transactions; one that comes back otherwise is dropped."""
        connection = await self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    async def take(self) -> AsyncConnection[Any]:
        """Lend a connection until `give_back`, for those who do so often."""
        if self._slots.locked():
            try:
                await asyncio.wait_for(self._slots.acquire(), _PATIENCE)
            except TimeoutError:
                raise _exhausted(self._location) from None
        else:
            await self._slots.acquire()
        try:
            return self._next() or await connect(self._location, for_verbs=self._for_verbs)
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: AsyncConnection[Any]) -> None:
        """Take a connection back."""
        if is_idle(connection) and not self.is_closed:
            self._idle.append(connection)
        else:
            drop(connection)
        self._slots.release()

    def _next(self) -> AsyncConnection[Any] | None:
        while self._idle:
            connection = self._idle.pop()
            if not has_gone(connection):
                return connection
            drop(connection)
        return None

    def drop_idle(self) -> None:
        """Close what lies idle."""
        while self._idle:
            drop(self._idle.pop())


class AsyncPools:
    """A pool for each event loop that asks: a connection belongs to the loop that opened it.

    `for_verbs`: only our own statements run on its connections, so they are planned as suits those.
    """

    def __init__(self, location: Location, *, for_verbs: bool = False) -> None:
        self._location = location
        self._for_verbs = for_verbs
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = WeakKeyDictionary()

    @property
    def here(self) -> AsyncPool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = AsyncPool(self._location, for_verbs=self._for_verbs)
        return pool

    def drop_idle(self) -> None:
        """Close what lies idle in any of them."""
        for pool in list(self._pools.values()):
            pool.drop_idle()

    def close(self) -> None:
        """Close what lies idle, and what is lent as it comes back."""
        for pool in list(self._pools.values()):
            pool.is_closed = True
        self.drop_idle()


class BlockingPool:
    """The connections of handlers in threads."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._idle: list[Connection[Any]] = []
        self._slots = threading.Semaphore(location.pool)
        self._is_closed = False

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """Lend a connection that is between transactions; one that comes back otherwise is dropped."""
        if not self._slots.acquire(timeout=_PATIENCE):
            raise _exhausted(self._location)
        try:
            connection = self._next() or connect_blocking(self._location)
            try:
                yield connection
            finally:
                if is_idle(connection) and not self._is_closed:
                    self._idle.append(connection)
                else:
                    drop(connection)
        finally:
            self._slots.release()

    def _next(self) -> Connection[Any] | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not has_gone(connection):
                return connection
            drop(connection)

    def drop_idle(self) -> None:
        """Close what lies idle."""
        while (connection := self._next()) is not None:
            drop(connection)

    def close(self) -> None:
        """Close what lies idle, and what is lent as it comes back."""
        self._is_closed = True
        self.drop_idle()
