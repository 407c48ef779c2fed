"""Connections kept for reuse, within a bound.

No thread and no task maintains the pool. A connection is opened when one is needed, so an outage is reported at once
with its reason, and the first request after it reaches the server again. A broken connection is dropped, never reused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Generic, Protocol, TypeVar

from holdfast.errors import StoreUnavailable

C = TypeVar("C")
D_contra = TypeVar("D_contra", contravariant=True)
_SLOT_TIMEOUT: Final = 30.0


class Connections(Protocol[D_contra]):
    """What a pool needs from a driver."""

    @property
    def url(self) -> str:
        """The URL of the database, for messages."""
        ...

    @property
    def limit(self) -> int:
        """How many may be open in one pool."""
        ...

    def is_reusable(self, connection: D_contra) -> bool:
        """Whether a returned connection is open and between transactions."""
        ...

    def is_broken(self, connection: D_contra) -> bool:
        """Whether an idle connection can no longer be used."""
        ...

    def drop(self, connection: D_contra) -> None:
        """Close without waiting; callable from any thread."""
        ...

    def lent(self, connection: D_contra) -> AbstractContextManager[None]:
        """Restore, at the end of the block, attributes of the connection object that the borrower has set."""
        ...


class _Pool(Generic[C]):
    """Idle connections, which any thread may close at any time; `lost` is called when one has broken, or may have."""

    def __init__(self, connections: Connections[C], users: str, lost: Callable[[], None]) -> None:
        self._connections = connections
        self._users = users
        self._lost = lost
        self._idle: list[C] = []
        self._is_closed = False

    def _idle_one(self) -> C | None:
        """Return the last usable connection, or None; broken ones are dropped."""
        while (connection := self._popped()) is not None:
            if not self._connections.is_broken(connection):
                return connection
            self._lost()
            self._connections.drop(connection)
        return None

    def _keep(self, connection: C) -> None:
        """Keep a connection for the next borrower, or drop it."""
        if self._connections.is_reusable(connection) and not self._is_closed:
            self._idle.append(connection)
        else:
            self._lost()
            self._connections.drop(connection)

    def _popped(self) -> C | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def drop_idle(self) -> None:
        """Close idle connections; callable from any thread."""
        self._lost()
        while (connection := self._popped()) is not None:
            self._connections.drop(connection)

    def close(self) -> None:
        """Close idle connections, and those in use when they are returned."""
        self._is_closed = True
        self.drop_idle()

    def _exhausted(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._connections.url}: all connections for {self._users} ({self._connections.limit}) have been in use "
            f"for {_SLOT_TIMEOUT:g} s: keep transactions short, or raise pool= in the URL"
        )


class AsyncPool(_Pool[C]):
    """The connections of one event loop."""

    def __init__(
        self, connections: Connections[C], connect: Callable[[], Awaitable[C]], *, users: str, lost: Callable[[], None]
    ) -> None:
        super().__init__(connections, users, lost)
        self._connect = connect
        self._slots = asyncio.Semaphore(connections.limit)

    def connection(self) -> Lending[C]:
        """Lend a connection without an open transaction; one that is returned with an open one is dropped."""
        return Lending(self, self._connections)

    async def take(self) -> C:
        """Lend a connection until `put`, without the cost of a context manager."""
        if self._slots.locked():
            try:
                async with asyncio.timeout(_SLOT_TIMEOUT):
                    await self._slots.acquire()
            except TimeoutError:
                raise self._exhausted() from None
        else:
            await self._slots.acquire()
        try:
            return self._idle_one() or await self._connect()
        except BaseException:
            self._slots.release()
            raise

    def put(self, connection: C) -> None:
        """Return a connection."""
        self._keep(connection)
        self._slots.release()

    def weed(self) -> None:
        """Drop broken idle connections, up to the first usable one, which is lent next."""
        connection = self._idle_one()
        if connection is not None:
            self._keep(connection)


class Lending(Generic[C]):
    """A connection that is lent for a block; a class, because an async generator costs some 8 µs."""

    def __init__(self, pool: AsyncPool[C], connections: Connections[C]) -> None:
        self._pool = pool
        self._connections = connections

    async def __aenter__(self) -> C:
        """Take the connection."""
        self._connection = await self._pool.take()
        self._lent = self._connections.lent(self._connection)
        self._lent.__enter__()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        """Return it."""
        self._lent.__exit__(None, None, None)
        self._pool.put(self._connection)


class AsyncPools(Generic[C]):
    """A pool for each event loop that uses the store: a connection belongs to the loop that opened it."""

    def __init__(self, connections: Connections[C], connect: Callable[[], Awaitable[C]], *, users: str) -> None:
        self._connections = connections
        self._connect = connect
        self._users = users
        self._pools: dict[asyncio.AbstractEventLoop, AsyncPool[C]] = {}
        self.losses = 0
        """Grows whenever a connection has broken: values cached from it may be out of date."""

    @property
    def here(self) -> AsyncPool[C]:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._forget_ended_loops()
            pool = AsyncPool(self._connections, self._connect, users=f"{self._users} in one event loop", lost=self.lose)
            self._pools[loop] = pool
        return pool

    def lose(self) -> None:
        """Record that a connection has broken, or that the database behind it has changed."""
        self.losses += 1

    def _forget_ended_loops(self) -> None:
        for loop, pool in list(self._pools.items()):
            if loop.is_closed():
                self._pools.pop(loop, None)
                pool.drop_idle()

    def drop_idle(self) -> None:
        """Close the idle connections of all pools; callable from any thread."""
        self.lose()
        for pool in list(self._pools.values()):
            pool.drop_idle()

    def close(self) -> None:
        """Close idle connections, and those in use when they are returned."""
        for pool in list(self._pools.values()):
            pool.close()
        self.lose()


class BlockingPool(_Pool[C]):
    """The connections of threads."""

    def __init__(self, connections: Connections[C], connect: Callable[[], C], *, users: str) -> None:
        super().__init__(connections, users, lost=lambda: None)
        self._connect = connect
        self._slots = threading.Semaphore(connections.limit)

    @contextmanager
    def connection(self) -> Generator[C]:
        """Lend a connection without an open transaction; one that is returned with an open one is dropped."""
        if not self._slots.acquire(timeout=_SLOT_TIMEOUT):
            raise self._exhausted()
        try:
            connection = self._idle_one() or self._connect()
            try:
                with self._connections.lent(connection):
                    yield connection
            finally:
                self._keep(connection)
        finally:
            self._slots.release()
