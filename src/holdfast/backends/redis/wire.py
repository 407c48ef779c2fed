"""Runs scripts over connections that redis-py opens, async and blocking.

The driver's own repeats are off: by default it sends a claim again whose reply was lost. A connection is used by one
call at a time, and is dropped if the call does not end with a reply: no reply is ever taken for that of another call.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from redis.asyncio import connection as driver
from redis.exceptions import NoScriptError, RedisError

from holdfast.backends.redis.channel import Channel
from holdfast.backends.redis.durability import Confirmation
from holdfast.backends.redis.error_map import is_reply, translate
from holdfast.backends.redis.location import Address, RedisLocation
from holdfast.backends.redis.route import CONNECT_TIMEOUT, Route, connect_blocking
from holdfast.backends.redis.steps import AnotherStore, ScriptCall, Word
from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.store.connection_pool import AsyncPools
from holdfast.store.schema_version import require_version

VERSION = 1
_REDIRECTIONS = 5  # of one call: a slot that is moved meanwhile is found again
_FAULTS = (RedisError, OSError, TimeoutError)


class Server:
    """A store on a server, as the calls of one process name it; `id` is empty until it is known."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        self.location = location
        self.route = Route(location)
        self.confirmation = Confirmation(location)
        self.clock = clock
        self.id = b""
        self._meta = f"{location.prefix}meta"

    def command(self, call: ScriptCall, store: bytes) -> tuple[Word, ...]:
        """Return the words of a call to the store with this id."""
        clock: Word = "" if self.clock is None else self.clock()
        keys = (1 + len(call.keys), self._meta, *call.keys)
        return ("EVALSHA", call.script.sha, *keys, b"" if call.any_store else store, clock, *call.words)

    def refused(self, error: Exception) -> None:
        """Raise what follows from a script's own refusal: the store is missing, of another version, or another one."""
        text = str(error)
        if text.startswith("HOLDFAST version "):
            require_version(int(text.rpartition(" ")[2]), VERSION, f"the keys of {self.location.url}")
            raise SchemaMismatch(f"{self.location.url}: {text}")
        if text.startswith("HOLDFAST another store"):
            self.id = b""
            raise AnotherStore


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

    async def call(self, call: ScriptCall, store: bytes, redirections: int = 0) -> Any:
        """Run a script on the store with this id; load it first if the server does not know it."""
        pool = self.pools.here
        link = await pool.take()
        writes = call.writes
        run = self._confirmed if self._server.confirmation.follows(call) else self._reply
        try:
            try:
                return await run(link, *self._server.command(call, store))
            except NoScriptError:
                writes = False
                await self._reply(link, "SCRIPT", "LOAD", call.script.text)
                writes = call.writes
                return await run(link, *self._server.command(call, store))
        except _FAULTS as error:
            self._server.refused(error)
            if not self._is_redirected(link, error, redirections):
                raise translate(error, self.url, writes=writes and link.is_busy) from error
        finally:
            pool.put(link)
        return await self.call(call, store, redirections + 1)

    async def ask(self, *words: Word, redirections: int = 0) -> Any:
        """Run a plain command, outside any script."""
        pool = self.pools.here
        link = await pool.take()
        try:
            return await self._reply(link, *words)
        except _FAULTS as error:
            if not self._is_redirected(link, error, redirections):
                raise translate(error, self.url, writes=False) from error
        finally:
            pool.put(link)
        return await self.ask(*words, redirections=redirections + 1)

    def _is_redirected(self, link: Link, error: Exception, redirections: int) -> bool:
        """Whether nothing was done because the store is on another server, which is known now."""
        return self._server.route.heed(error, link.address) and redirections < _REDIRECTIONS

    async def _confirmed(self, link: Link, *words: Word) -> Any:
        """Return the reply to a script once enough replicas have what it has written."""
        confirmation, connection = self._server.confirmation, link.connection
        commands = [words, *confirmation.commands]
        replies: list[Any] = []
        link.is_busy = True
        async with asyncio.timeout(self._timeout + confirmation.timeout):
            packed = [chunk for each in commands for chunk in connection.pack_command(*each)]
            await connection.send_packed_command(packed, check_health=False)
            while len(replies) < len(commands):
                try:
                    replies.append(await connection.read_response())
                except RedisError as error:
                    if not is_reply(error):
                        raise
                    replies.append(error)
        link.is_busy = False
        return confirmation.checked(replies)

    async def _reply(self, link: Link, *words: Word) -> Any:
        link.is_busy = True
        try:
            reply = await link.connection.exchange(words, self._timeout)
        except RedisError as error:
            link.is_busy = not is_reply(error)
            raise
        link.is_busy = False
        return reply

    async def _connect(self) -> Link:
        for left in reversed(range(self._server.route.attempts)):
            try:
                return await self._connected()
            except StoreUnavailable:
                if not left:
                    raise
        raise AssertionError

    async def _connected(self) -> Link:
        route = self._server.route
        link: Link | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                address = await route.found()
                link = Link(route.connection(driver, address, socket_timeout=None), address)
                await link.connection.connect()
                link.connection = Channel(link.connection)
                if route.question:
                    route.require_primary(await self._reply(link, *route.question))
        except BaseException as error:
            if link is not None:
                route.heed(error, link.address)
                self.drop(link)
            if isinstance(error, _FAULTS):
                raise translate(error, self.url, writes=False) from error
            raise
        return link

    # -- what the pool asks for

    def is_reusable(self, connection: Link) -> bool:
        """Whether no reply is outstanding, and it leads to the primary, as far as that is known."""
        is_current = self._server.route.is_current(connection.address)
        return is_current and not connection.is_busy and connection.connection.is_connected

    def is_broken(self, connection: Link) -> bool:
        """Whether the server has closed an idle connection, or is not the primary any more."""
        reader = getattr(connection.connection, "_reader", None)
        return reader is None or reader.at_eof() or not self._server.route.is_current(connection.address)

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
        self._address = server.route.address

    def call(self, call: ScriptCall, store: bytes, timeout: float | None = None, redirections: int = 0) -> Any:
        """Run a script on the store with this id; load it first if the server does not know it."""
        url = self._server.location.url
        try:
            connection = self.connection(timeout)
        except _FAULTS as error:
            self.close()
            raise translate(error, url, writes=False) from error
        run = self._confirmed if self._server.confirmation.follows(call) else self._reply
        try:
            try:
                return run(connection, *self._server.command(call, store))
            except NoScriptError:
                self._reply(connection, "SCRIPT", "LOAD", call.script.text)
                return run(connection, *self._server.command(call, store))
        except _FAULTS as error:
            if not is_reply(error):
                self.close()
            self._server.refused(error)
            is_redirected = self._server.route.heed(error, self._address)
            if not is_redirected or redirections >= _REDIRECTIONS:
                raise translate(error, url, writes=call.writes and not is_reply(error)) from error
        return self.call(call, store, timeout, redirections + 1)

    def connection(self, timeout: float | None = None) -> Any:
        """Return the open connection, with a time limit for each reply."""
        limit = timeout or self._server.location.reply_timeout
        route = self._server.route
        if self._connection is not None and (not route.is_current(self._address) or _has_gone(self._connection)):
            self.close()
        if self._connection is None:
            self._connection, self._address = connect_blocking(route, limit)
        self._connection._sock.settimeout(limit)  # noqa: SLF001 - the driver has no other way to change it
        return self._connection

    def _confirmed(self, connection: Any, *words: Word) -> Any:
        """Return the reply to a script once enough replicas have what it has written."""
        confirmation = self._server.confirmation
        commands = [words, *confirmation.commands]
        sock = connection._sock  # noqa: SLF001 - see `connection`
        sock.settimeout(sock.gettimeout() + confirmation.timeout)
        packed = [chunk for each in commands for chunk in connection.pack_command(*each)]
        connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        while len(replies) < len(commands):
            try:
                replies.append(connection.read_response())
            except RedisError as error:
                if not is_reply(error):
                    raise
                replies.append(error)
        return confirmation.checked(replies)

    @staticmethod
    def _reply(connection: Any, *words: Word) -> Any:
        connection.send_packed_command(connection.pack_command(*words), check_health=False)
        return connection.read_response()

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
