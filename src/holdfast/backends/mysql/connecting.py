"""Open connections, set their sessions up, and refuse servers that only appear to lock.

The sessions are read committed: claims, completions and the moves of shares are written for it. Their SQL mode, time
zone and waits are ours, whatever the server's administrator has chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
from typing import Any, NamedTuple

import pymysql
from asyncmy.connection import Connection as AsyncmyConnection
from pymysql.constants import CLIENT, SERVER_STATUS

from holdfast.backends.mysql.error_map import DriverError, translate
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.errors import ConfigError

CONNECT_TIMEOUT = 5
LOCK_WAIT = 10  # seconds for a row that another transaction has locked
SILENCE = 30  # seconds after which the server ends a session that is silent: a frozen process keeps its locks so long
_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
_SETTINGS = (
    "set session transaction isolation level read committed",
    "set session time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1,"
    f" innodb_lock_wait_timeout = {LOCK_WAIT}, lock_wait_timeout = {LOCK_WAIT}, wait_timeout = {SILENCE}",
)
# Read by MariaDB alone: there, a transaction whose client is silent ends earlier than its session.
_MARIADB_SETTINGS = "/*M!100600 set session idle_transaction_timeout = 5, in_predicate_conversion_threshold = 0 */"
# Newer MariaDB gives a repeatable read transaction up when it locks a row that has changed since its snapshot, as an
# extended lease has: our locks are meant to read the latest version.
_NO_SNAPSHOT_CHECKS = "set session innodb_snapshot_isolation = off"
_LOOK = (
    "select version(), @@version_comment, (select count(*) from information_schema.engines where engine = 'InnoDB'"
    " and support in ('YES', 'DEFAULT')), @@autocommit"
)
_LEAST = {"MariaDB": (10, 6), "MySQL": (8, 0, 19)}


class Result(NamedTuple):
    """The answer to one statement: its rows, or how many it changed; `insert_id` is the first generated number."""

    rows: tuple[Any, ...] | None
    changed: int
    insert_id: int


class VerbConnection(AsyncmyConnection):  # type: ignore[misc]
    """A connection on which only our own statements run. `lock_wait` is what the session is set to."""

    lock_wait = LOCK_WAIT

    async def ask(self, texts: list[str]) -> list[Result]:
        """Run statements, in one trip where the server allows it; after an error none of the later ones runs."""
        if not self.server_capabilities & CLIENT.MULTI_STATEMENTS:
            return [(await self._ask(text))[0] for text in texts]
        return await self._ask(";".join(texts))

    async def _ask(self, text: str) -> list[Result]:
        await self.query(text)
        found = [_result(self._result)]
        while self._result.has_next:
            await self.next_result()
            found.append(_result(self._result))
        return found


class BlockingConnection(pymysql.connections.Connection):  # type: ignore[type-arg]
    """The same for threads."""

    def ask(self, texts: list[str]) -> list[Result]:
        """Run statements, in one trip where the server allows it; after an error none of the later ones runs."""
        if not self.server_capabilities & CLIENT.MULTI_STATEMENTS:
            return [self._ask(text)[0] for text in texts]
        return self._ask(";".join(texts))

    def set_read_timeout(self, seconds: float) -> None:
        """Give up on a reply after this time; the connection is broken then."""
        self._read_timeout = seconds

    def _ask(self, text: str) -> list[Result]:
        self.query(text)
        found = [_result(self._result)]
        while self._result is not None and self._result.has_next:
            self.next_result()
            found.append(_result(self._result))
        return found


def _result(found: Any) -> Result:
    rows = found.rows if found.description is not None else None
    return Result(rows, max(0, found.affected_rows), found.insert_id or 0)


Either = VerbConnection | BlockingConnection


async def connect(location: MysqlLocation, kind: type[VerbConnection] = VerbConnection) -> VerbConnection:
    """Open an async connection in autocommit; raises `StoreUnavailable`, or `ConfigError` for an unsuitable server."""
    connection = kind(
        **location.arguments,
        charset="utf8mb4",
        autocommit=None,
        client_flag=_FLAGS,
        connect_timeout=CONNECT_TIMEOUT,
        ssl=location.encryption,
    )
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT + location.reply_timeout):
            await connection.connect()
            await connection.ask(_texts(connection))
            (look, *more) = await connection.ask(_looks(connection))
            if require_suitable(location, look.rows, more[0].rows if more else None):
                await connection.ask([_NO_SNAPSHOT_CHECKS])
    except BaseException as error:
        drop(connection)
        raise _not_connected(location, error) from error
    return connection


def connect_blocking(
    location: MysqlLocation, kind: type[BlockingConnection] = BlockingConnection
) -> BlockingConnection:
    """Open a blocking connection in autocommit; raises as `connect` does."""
    connection: BlockingConnection | None = None
    try:
        encryption = location.encryption
        connection = kind(
            **location.arguments,
            charset="utf8mb4",
            autocommit=None,
            client_flag=_FLAGS,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=int(location.reply_timeout) + 1,
            write_timeout=int(location.reply_timeout) + 1,
            **({"ssl_disabled": True} if encryption is None else {"ssl": encryption}),
        )
        connection.ask(_texts(connection))
        (look, *more) = connection.ask(_looks(connection))
        if require_suitable(location, look.rows, more[0].rows if more else None):
            connection.ask([_NO_SNAPSHOT_CHECKS])
    except BaseException as error:
        if connection is not None:
            drop(connection)
        raise _not_connected(location, error) from error
    return connection


def _is_mariadb(connection: Either) -> bool:
    return "mariadb" in str(connection.get_server_info()).lower()


def _texts(connection: Either) -> list[str]:
    return [*_SETTINGS, _MARIADB_SETTINGS] if _is_mariadb(connection) else list(_SETTINGS)


def _looks(connection: Either) -> list[str]:
    cluster = "show variables where variable_name in ('wsrep_on', 'innodb_snapshot_isolation')"
    return [_LOOK, cluster] if _is_mariadb(connection) else [_LOOK]


def require_suitable(location: MysqlLocation, found: Any, variables: Any) -> bool:
    """Raise `ConfigError`, with the reason, for a server on which a lock does not lock, or that is too old.

    Returns whether the session has checks of snapshots to be switched off.
    """
    ((version, comment, innodb, _),) = found
    text = f"{version} {comment}"
    for name, reason in (
        ("tidb", "it accepts `for update skip locked` and locks nothing, so that two workers would claim the same job"),
        ("dolt", "it accepts `for update skip locked` and locks nothing, so that two workers would claim the same job"),
        ("vitess", "it generates no numbers across shards, and not every version skips locked rows"),
    ):
        if name in text.lower():
            raise ConfigError(f"{location.url} is {text}, which cannot hold a store: {reason}")
    settings = {name: str(value).upper() for name, value in variables or ()}
    if settings.get("wsrep_on") == "ON" and location.galera is None:
        message = (
            f"{location.url} is a node of a Galera cluster, whose locks hold on one node only: let all processes write "
            "to the same node, and say so with galera=one-writer in the URL"
        )
        raise ConfigError(message)
    product = "MariaDB" if "mariadb" in text.lower() else "MySQL"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < _LEAST[product]:
        least = ".".join(map(str, _LEAST[product]))
        raise ConfigError(f"{location.url} is {product} {version}: Holdfast needs at least {least}")
    if not innodb:
        raise ConfigError(f"{location.url} has no InnoDB, the engine whose transactions Holdfast needs")
    return settings.get("innodb_snapshot_isolation") == "ON"


def _not_connected(location: MysqlLocation, error: BaseException) -> BaseException:
    if isinstance(error, TimeoutError):
        error = ConnectionError(f"no answer within {CONNECT_TIMEOUT + location.reply_timeout:g} s")
    return translate(error, location.url, broken=True) if isinstance(error, (*DriverError, OSError)) else error


def is_open(connection: Either) -> bool:
    """Return whether a connection can be used, as far as this side knows."""
    if isinstance(connection, VerbConnection):
        return bool(connection.connected and connection._transport is not None and not connection._stream_broken)  # noqa: SLF001 - not in the driver's surface
    return bool(connection.open)


def is_in_transaction(connection: Any) -> bool:
    """Return whether the server's last reply said that a transaction is open."""
    return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def is_idle(connection: Either) -> bool:
    """Return whether a connection is open and between transactions."""
    return is_open(connection) and not is_in_transaction(connection)


def has_gone(connection: Either) -> bool:
    """Return whether an idle connection is unusable: bytes that nobody asked for mean that the server closes it."""
    if not is_idle(connection):
        return True
    descriptor = _socket(connection)
    if descriptor is None:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _socket(connection: Either) -> int | None:
    if isinstance(connection, VerbConnection):
        found = connection._transport.get_extra_info("socket")  # noqa: SLF001 - not in the driver's surface
    else:
        found = connection._sock  # noqa: SLF001 - as above
    return None if found is None or found.fileno() < 0 else int(found.fileno())


def drop(connection: Either) -> None:
    """Close at once, without waiting for the server; callable from any thread."""
    if isinstance(connection, BlockingConnection):
        connection._force_close()  # noqa: SLF001 - `close` would send a farewell first
        return
    transport, connection._transport, connection._connected = connection._transport, None, False  # noqa: SLF001
    if transport is not None:
        loop = connection.loop
        if loop.is_closed():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            transport.abort()
        else:
            loop.call_soon_threadsafe(transport.abort)


def hang_up(connection: BlockingConnection) -> None:
    """Break a connection that another thread may be using: its call fails at once."""
    found = connection._sock  # noqa: SLF001 - not in the driver's surface
    if found is not None:
        with contextlib.suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)
