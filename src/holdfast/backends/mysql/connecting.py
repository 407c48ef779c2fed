"""Open connections, set their sessions up, and refuse servers that only appear to lock.

The sessions are read committed: claims, completions and the moves of shares are written for it. Their SQL mode, time
zone and waits are ours, whatever the server's administrator has chosen.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.backends.mysql.driver import FLAGS, BlockingConnection, Either, Result, VerbConnection, drop
from holdfast.backends.mysql.error_map import DriverError, translate
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import TEMPLATES
from holdfast.errors import ConfigError

CONNECT_TIMEOUT = 5
SILENCE = 30  # seconds after which the server ends a session that is silent: a frozen process keeps its locks so long
_ISOLATION = "set session transaction isolation level read committed"
_SETTINGS = (
    "set session time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1,"
    f" wait_timeout = {SILENCE}, net_read_timeout = {SILENCE}, net_write_timeout = {SILENCE},"
    " innodb_lock_wait_timeout = %d, lock_wait_timeout = %d"
)
# Read by MariaDB alone: there, a transaction whose client is silent ends earlier than its session. An administrator's
# limit on the time of a statement is meant for reports: it would interrupt a verb that waits for a lock.
_MARIADB_SETTINGS = (
    "/*M!100600 set session idle_transaction_timeout = 5, in_predicate_conversion_threshold = 0,"
    " max_statement_time = 0 */"
)
_MYSQL_SETTINGS = "set session max_execution_time = 0"
# Newer MariaDB aborts a repeatable-read transaction when it locks a row that has changed since its snapshot, as an
# extended lease has: our locks are meant to read the latest version.
_NO_SNAPSHOT_CHECKS = "set session innodb_snapshot_isolation = off"
_VARIABLES = "'wsrep_on', 'group_replication_single_primary_mode', 'innodb_snapshot_isolation'"
_LOOKS = [TEMPLATES["server_look"], f"show variables where variable_name in ({_VARIABLES})"]
_LEAST = {"MariaDB": (10, 6), "MySQL": (8, 0, 19)}


async def connect(location: MysqlLocation, kind: type[VerbConnection] = VerbConnection) -> VerbConnection:
    """Open an async connection in autocommit; raises `StoreUnavailable`, or `ConfigError` for an unsuitable server."""
    connection = kind(
        **location.arguments,
        charset="utf8mb4",
        autocommit=True,
        client_flag=FLAGS,
        connect_timeout=CONNECT_TIMEOUT,
        ssl=location.encryption,
    )
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT + location.reply_timeout):
            await connection.connect()
            connection.lock_wait = location.lock_wait()
            await connection.ask(_settings(location, connection, await connection.ask(_LOOKS)))
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
        encrypted: dict[str, Any] = {"ssl_disabled": True} if encryption is None else {"ssl": encryption}
        connection = kind(
            **location.arguments,
            charset="utf8mb4",
            autocommit=None,
            client_flag=FLAGS,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=int(location.reply_timeout) + 1,
            write_timeout=int(location.reply_timeout) + 1,
            **encrypted,
        )
        connection.ask(_settings(location, connection, connection.ask(_LOOKS)))
    except BaseException as error:
        if connection is not None:
            drop(connection)
        raise _not_connected(location, error) from error
    return connection


def _settings(location: MysqlLocation, connection: Either, looks: Sequence[Result]) -> list[str]:
    """Return what sets up a session of this server; raise `ConfigError` for an unsuitable one."""
    found: list[Any] = [result.rows for result in looks]
    ((version, comment, innodb, longest),), variables = found
    connection.longest = int(longest)
    texts = [_ISOLATION, _SETTINGS % (location.lock_wait(), location.lock_wait())]
    texts.append(_MARIADB_SETTINGS if "mariadb" in version.lower() else _MYSQL_SETTINGS)
    if require_suitable(location, (version, comment, innodb), variables):
        texts.append(_NO_SNAPSHOT_CHECKS)
    return texts


def require_suitable(
    location: MysqlLocation, found: tuple[str, str, int], variables: Iterable[tuple[str, str]]
) -> bool:
    """Raise `ConfigError`, with the reason, for a server on which a lock does not lock, or that is too old.

    Returns whether the session has checks of snapshots to be switched off.
    """
    version, comment, innodb = found
    text = f"{version} {comment}"
    for name, reason in (
        ("tidb", "it accepts `for update skip locked` and locks nothing, so that two workers would claim the same job"),
        ("dolt", "it accepts `for update skip locked` and locks nothing, so that two workers would claim the same job"),
        ("vitess", "it generates no numbers across shards, and not every version skips locked rows"),
    ):
        if name in text.lower():
            raise ConfigError(f"{location.url} is {text}, which cannot hold a store: {reason}")
    settings = {name: value.upper() for name, value in variables}
    is_multi_primary = settings.get("group_replication_single_primary_mode") == "OFF"
    if (settings.get("wsrep_on") == "ON" or is_multi_primary) and location.galera is None:
        cluster = "multi-primary replication group" if is_multi_primary else "Galera cluster"
        message = (
            f"{location.url} is a node of a {cluster}, whose locks hold on one node only: let all processes write "
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
