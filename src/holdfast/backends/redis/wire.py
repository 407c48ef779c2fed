"""Runs scripts over connections that redis-py opens, async and blocking.

The driver's own repeats are off: by default it sends a claim again whose reply was lost. A connection is used by one
call at a time, and is dropped if the call does not end with a reply: no reply is ever taken for that of another call.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from redis.asyncio import connection as driver
from redis.exceptions import NoScriptError, RedisError

from holdfast.backends.redis.channel import Channel
from holdfast.backends.redis.durability import Confirmation
from holdfast.backends.redis.error_map import is_reply, translate
from holdfast.backends.redis.location import Address, RedisLocation
from holdfast.backends.redis.primary import CONNECT_TIMEOUT, Primary, connect_blocking
from holdfast.backends.redis.steps import AnotherStore, Restart, ScriptCall, Word
from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.store.connection_pool import AsyncPools
from holdfast.store.schema_version import require_version

VERSION = 1
_SERVERS = 6  # that one call is sent to, at most: a slot that is moved meanwhile is found again
_FAULTS = (RedisError, OSError, TimeoutError)
Commands = Sequence[tuple[Word, ...]]
Exchange = Generator[tuple[Commands, bool], list[Any], Any]
"""Yields commands to be sent together, and whether they may write; is sent their replies, errors among them."""


class Server:
    """A store on a server, as the calls of one process name it; `id` is empty until it is known."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        self.location = location
        self.primary = Primary(location)
        self.confirmation = Confirmation(location)
        self.clock = clock
        self.id = b""
        self._meta = f"{location.prefix}meta"

    def connected(self) -> None:
        """Forget what is known of the store: a new connection may be to a server that has lost the last lanes."""
        self.id = b""

    def command(self, call: ScriptCall, store: bytes) -> tuple[Word, ...]:
        """Return the words of a call to the store with this id."""
        clock: Word = "" if self.clock is None else self.clock()
        keys = (1 + len(call.keys), self._meta, *call.keys)
        return ("EVALSHA", call.script.sha, *keys, b"" if call.any_store else store + call.lanes, clock, *call.words)

    def exchange(self, call: ScriptCall, store: bytes) -> Exchange:
        """Run a script on the store with this id, load it first if need be, and wait for replicas where that is due."""
        is_confirmed = self.confirmation.follows(call)
        commands = [self.command(call, store), *(self.confirmation.commands if is_confirmed else ())]
        replies = yield commands, call.writes
        if isinstance(replies[0], NoScriptError):
            (loaded,) = yield [("SCRIPT", "LOAD", call.script.text)], False
            if isinstance(loaded, Exception):
                raise loaded
            replies = yield commands, call.writes
        return self.confirmation.checked(replies)

    def refused(self, error: Exception) -> None:
        """Raise what follows from a script's own refusal: another version, another store, other lanes."""
        text = str(error)
        if text.startswith("HOLDFAST version "):
            require_version(int(text.rpartition(" ")[2]), VERSION, f"the keys of {self.location.url}")
            raise SchemaMismatch(f"{self.location.url}: {text}")
        if text.startswith("HOLDFAST another store"):
            self.id = b""
            raise AnotherStore
        if text.startswith("HOLDFAST other lanes"):
            self.id = b""  # they are read again
            raise Restart


def _plain(words: tuple[Word, ...]) -> Exchange:
    """Run a command outside any script."""
    (reply,) = yield [words], False
    if isinstance(reply, Exception):
        raise reply
    return reply


class Link:
    """A connection of an event loop, where it leads, and whether a reply is outstanding on it."""

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self.is_busy = False
        self.loop = asyncio.get_running_loop()


class AsyncWire:
    """The connections of the event loops of one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.location.url
        self.limit = server.location.pool
        self._timeout = server.location.reply_timeout
        self.pools = AsyncPools[Link](self, self._connect, users="verbs")

    async def call(self, call: ScriptCall, store: bytes) -> Any:
        """Run a script on the store with this id."""
        return await self._run(lambda: self._server.exchange(call, store))

    async def ask(self, *words: Word) -> Any:
        """Run a plain command, outside any script."""
        return await self._run(lambda: _plain(words))

    async def _run(self, begin: Callable[[], Exchange]) -> Any:
        """Run an exchange; on another server, if this one answers that the store is there."""
        pool = self.pools.here
        for left in reversed(range(_SERVERS)):
            link = await pool.take()
            exchange, writes = begin(), False
            try:
                commands, writes = next(exchange)
                while True:
                    commands, writes = exchange.send(await self._replies(link, commands))
            except StopIteration as stop:
                return stop.value
            except _FAULTS as error:
                self._server.refused(error)
                if not (self._server.primary.note_fault(error, link.address) and left):
                    raise translate(error, self.url, writes=writes and link.is_busy) from error
            finally:
                pool.put(link)
        raise AssertionError

    async def _replies(self, link: Link, commands: Commands) -> list[Any]:
        link.is_busy = True
        waits = self._server.confirmation.timeout if len(commands) > 1 else 0.0
        replies: list[Any] = await link.connection.exchange(commands, self._timeout + waits)
        link.is_busy = False
        return replies

    async def _connect(self) -> Link:
        for left in reversed(range(self._server.primary.attempts)):
            try:
                return await self._connected()
            except StoreUnavailable:
                if not left:
                    raise
        raise AssertionError

    async def _connected(self) -> Link:
        primary = self._server.primary
        link: Link | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                address = await primary.found()
                link = Link(primary.connection(driver, address, CONNECT_TIMEOUT, None), address)
                await link.connection.connect()
                link.connection = Channel(link.connection)
                if primary.question:
                    primary.require_primary(*await self._replies(link, [primary.question]))
                self._server.connected()
        except BaseException as error:
            if link is not None:
                primary.note_fault(error, link.address)
                self.drop(link)
            if isinstance(error, _FAULTS):
                raise translate(error, self.url, writes=False) from error
            raise
        return link

    # -- what the pool asks for

    def is_reusable(self, connection: Link) -> bool:
        """Whether no reply is outstanding, and it leads to the primary, as far as that is known."""
        is_current = self._server.primary.is_current(connection.address)
        return is_current and not connection.is_busy and connection.connection.is_connected

    def is_broken(self, connection: Link) -> bool:
        """Whether the server has closed an idle connection, or is no longer the primary."""
        reader = getattr(connection.connection, "_reader", None)
        return reader is None or reader.at_eof() or not self._server.primary.is_current(connection.address)

    def drop(self, connection: Link) -> None:
        """Close without waiting; callable from any thread."""
        held = connection.connection
        writer = getattr(held, "_writer", None)
        if writer is not None:
            held._writer = held._reader = None  # noqa: SLF001 - its own way to close waits, and needs a running loop
            try:
                is_here = asyncio.get_running_loop() is connection.loop
            except RuntimeError:
                is_here = False
            with suppress(RuntimeError):  # the loop has ended
                if is_here:
                    _abort(writer)
                else:
                    connection.loop.call_soon_threadsafe(_abort, writer)

    def lent(self, connection: Link) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nothing is set on a connection."""
        return nullcontext()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection; the writer is kept until then, because it warns if it is deleted before."""
    writer.transport.abort()


class BlockingWire:
    """One connection for one thread, opened again after a fault."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Any = None
        self._address = server.primary.address

    def call(self, call: ScriptCall, store: bytes, timeout: float | None = None) -> Any:
        """Run a script on the store with this id."""
        return self._run(lambda: self._server.exchange(call, store), timeout)

    def ask(self, words: tuple[Word, ...], timeout: float | None = None) -> Any:
        """Run a plain command, outside any script."""
        return self._run(lambda: _plain(words), timeout)

    def _run(self, begin: Callable[[], Exchange], timeout: float | None) -> Any:
        """Run an exchange; on another server, if this one answers that the store is there."""
        url = self._server.location.url
        for left in reversed(range(_SERVERS)):
            try:
                connection = self.connection(timeout)
            except _FAULTS as error:
                self.close()
                raise translate(error, url, writes=False) from error
            exchange, writes = begin(), False
            try:
                commands, writes = next(exchange)
                while True:
                    commands, writes = exchange.send(self._replies(connection, commands))
            except StopIteration as stop:
                return stop.value
            except _FAULTS as error:
                if not is_reply(error):
                    self.close()
                self._server.refused(error)
                if not (self._server.primary.note_fault(error, self._address) and left):
                    raise translate(error, url, writes=writes and not is_reply(error)) from error
        raise AssertionError

    def connection(self, timeout: float | None = None) -> Any:
        """Return the open connection, with a time limit for each reply."""
        limit = timeout or self._server.location.reply_timeout
        primary = self._server.primary
        if self._connection is not None and (not primary.is_current(self._address) or _has_gone(self._connection)):
            self.close()
        if self._connection is None:
            self._connection, self._address = connect_blocking(primary, limit)
            self._server.connected()
        self._connection._sock.settimeout(limit)  # noqa: SLF001 - the driver has no other way to change it
        return self._connection

    def _replies(self, connection: Any, commands: Commands) -> list[Any]:
        if len(commands) > 1:
            sock = connection._sock  # noqa: SLF001 - see `connection`
            sock.settimeout(sock.gettimeout() + self._server.confirmation.timeout)
        connection.send_packed_command([chunk for each in commands for chunk in connection.pack_command(*each)], False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except RedisError as error:
                if not is_reply(error):
                    raise
                replies.append(error)
        return replies

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def _has_gone(connection: Any) -> bool:
    """Whether an idle connection is closed: unsolicited bytes are the end of the stream."""
    sock = connection._sock  # noqa: SLF001 - see above
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class BlockingWires:
    """Connections for handlers in threads, each used by one transaction at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._free: list[BlockingWire] = []
        self._is_closed = False

    def take(self) -> BlockingWire:
        """Return a connection, perhaps not yet connected."""
        with self._lock:
            return self._free.pop() if self._free else BlockingWire(self._server)

    def put(self, wire: BlockingWire) -> None:
        """Return it for another transaction."""
        with self._lock:
            if not self._is_closed:
                self._free.append(wire)
                return
        wire.close()

    def close(self) -> None:
        """Close those that are not in use, and the others when they are returned."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for wire in free:
            wire.close()
