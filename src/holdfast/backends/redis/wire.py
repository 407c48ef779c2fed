"""Runs scripts over connections of redis-py, async and blocking.

The driver's own repeats are off: by default it sends a claim again whose reply was lost. A connection is used by one
call at a time, and is dropped if the call does not end with a reply: no reply is ever taken for that of another call.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from redis import connection as blocking
from redis.asyncio import connection as driver
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from holdfast.backends.redis.error_map import is_reply, translate
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.steps import AnotherStore, ScriptCall, Word
from holdfast.errors import SchemaMismatch
from holdfast.store.connection_pool import AsyncPools
from holdfast.store.schema_version import require_version

VERSION = 1
CONNECT_TIMEOUT = 5.0
_FAULTS = (RedisError, OSError, TimeoutError)


def settings_of(location: RedisLocation) -> dict[str, Any]:
    """Return what both kinds of connections are made with."""
    settings: dict[str, Any] = {
        "db": location.db,
        "username": location.username,
        "password": location.password,
        "protocol": 2,
        "client_name": f"holdfast.{location.name}",  # shown by CLIENT LIST
        "socket_connect_timeout": CONNECT_TIMEOUT,
    }
    if location.path is not None:
        return {**settings, "path": location.path}
    settings |= {"host": location.host, "port": location.port}
    return {**settings, "ssl_ca_certs": location.ca} if location.tls else settings


class Server:
    """A store on a server, as the calls of one process name it; `id` is empty until it is known."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        self.location = location
        self.clock = clock
        self.id = b""
        self._meta = f"{location.prefix}meta"

    def command(self, call: ScriptCall, store: bytes) -> tuple[Word, ...]:
        """Return the words of a call to the store with this id."""
        clock: Word = "" if self.clock is None else self.clock()
        return ("EVALSHA", call.script.sha, 1, self._meta, b"" if call.any_store else store, clock, *call.words)

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
    """A connection of an event loop, and whether a reply is outstanding on it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
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
        """Run a script on the store with this id; load it first if the server does not know it."""
        pool = self.pools.here
        link = await pool.take()
        writes = call.writes
        try:
            try:
                return await self._reply(link, *self._server.command(call, store))
            except NoScriptError:
                writes = False
                await self._reply(link, "SCRIPT", "LOAD", call.script.text)
                writes = call.writes
                return await self._reply(link, *self._server.command(call, store))
        except _FAULTS as error:
            self._server.refused(error)
            raise translate(error, self.url, writes=writes and link.is_busy) from error
        finally:
            pool.put(link)

    async def ask(self, *words: Word) -> Any:
        """Run a plain command, outside any script."""
        pool = self.pools.here
        link = await pool.take()
        try:
            return await self._reply(link, *words)
        except _FAULTS as error:
            raise translate(error, self.url, writes=False) from error
        finally:
            pool.put(link)

    async def _reply(self, link: Link, *words: Word) -> Any:
        connection = link.connection
        link.is_busy = True
        try:
            async with asyncio.timeout(self._timeout):
                await connection.send_packed_command(connection.pack_command(*words), check_health=False)
                reply = await connection.read_response()
        except RedisError as error:
            link.is_busy = not is_reply(error)
            raise
        link.is_busy = False
        return reply

    async def _connect(self) -> Link:
        location = self._server.location
        kind: Any = driver.UnixDomainSocketConnection if location.path is not None else driver.Connection
        if location.tls:
            kind = driver.SSLConnection
        connection: Any = kind(retry=Retry(NoBackoff(), 0), socket_timeout=None, **settings_of(location))
        link = Link(connection)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await connection.connect()
        except BaseException as error:
            self.drop(link)
            if isinstance(error, _FAULTS):
                raise translate(error, self.url, writes=False) from error
            raise
        return link

    # -- what the pool asks for

    def is_reusable(self, connection: Link) -> bool:
        """Whether no reply is outstanding."""
        return not connection.is_busy and connection.connection.is_connected

    def is_broken(self, connection: Link) -> bool:
        """Whether the server has closed an idle connection."""
        reader = getattr(connection.connection, "_reader", None)
        return reader is None or reader.at_eof()

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

    def call(self, call: ScriptCall, store: bytes, timeout: float | None = None) -> Any:
        """Run a script on the store with this id; load it first if the server does not know it."""
        url = self._server.location.url
        try:
            connection = self.connection(timeout)
        except _FAULTS as error:
            self.close()
            raise translate(error, url, writes=False) from error
        try:
            try:
                return self._reply(connection, *self._server.command(call, store))
            except NoScriptError:
                self._reply(connection, "SCRIPT", "LOAD", call.script.text)
                return self._reply(connection, *self._server.command(call, store))
        except _FAULTS as error:
            if not is_reply(error):
                self.close()
            self._server.refused(error)
            raise translate(error, url, writes=call.writes and not is_reply(error)) from error

    def connection(self, timeout: float | None = None) -> Any:
        """Return the open connection, with a time limit for each reply."""
        limit = timeout or self._server.location.reply_timeout
        if self._connection is not None and _has_gone(self._connection):
            self.close()
        if self._connection is None:
            self._connection = connect_blocking(self._server.location, limit)
        self._connection._sock.settimeout(limit)  # noqa: SLF001 - the driver has no other way to change it
        return self._connection

    @staticmethod
    def _reply(connection: Any, *words: Word) -> Any:
        connection.send_packed_command(connection.pack_command(*words), check_health=False)
        return connection.read_response()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def connect_blocking(location: RedisLocation, reply_timeout: float | None) -> Any:
    """Open a blocking connection; errors of the driver pass through."""
    kind: Any = blocking.UnixDomainSocketConnection if location.path is not None else blocking.Connection
    if location.tls:
        kind = blocking.SSLConnection
    connection = kind(retry=Retry(NoBackoff(), 0), socket_timeout=reply_timeout, **settings_of(location))
    try:
        connection.connect()
    except BaseException:
        connection.disconnect()
        raise
    return connection


def _has_gone(connection: Any) -> bool:
    """Whether an idle connection is closed: unsolicited bytes are the end of the stream."""
    sock = connection._sock  # noqa: SLF001 - see above
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
