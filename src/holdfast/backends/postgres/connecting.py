"""Open connections, and check whether an idle one is still usable."""

from __future__ import annotations

import select
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import bounded, bounded_blocking
from holdfast.backends.postgres.transaction_connection import HandlersBlockingConnection, HandlersConnection
from holdfast.backends.postgres.wire import FastConnection

_PREPARE_AFTER = 3

Either = AsyncConnection[Any] | Connection[Any]

# A client that vanishes in the middle of a pipeline leaves a session that is not idle in its transaction. No timeout of
# the server ends it, and its locks stay for two hours with the default keepalives: 25 s with these.
_KEEPALIVES = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}

# A prepared statement is planned for an unknown limit, which counts as a tenth of the table: with a million ready jobs
# the server would compile the plan at each run, which takes longer than the statement itself.
_FOR_ALL = {**_KEEPALIVES, "jit": "off"}

# The plan of a prepared statement is kept. A plan made while the tables were nearly empty would scan all of `ready` at
# every claim once they are full, until the server happens to plan again: 500 ms instead of 5 with 200,000 jobs.
# By its estimates, which a million ready jobs distort, the server may also decide to plan at each run: a claim of ten
# jobs then takes 1.4 ms instead of 0.5.
_BY_INDEX = {
    **_FOR_ALL,
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}

# The verbs are written for read committed: under a stricter default of the database they would abort one another.
# Transactions set the level at BEGIN, and direct sessions for all else. Behind a pooler, where session settings are not
# ours to keep, a single statement gets a BEGIN and a COMMIT in the same round trip, if the database has a stricter
# default.
READ_COMMITTED_FRAME = (b"begin isolation level read committed", b"commit")
_FOR_VERBS = {**_BY_INDEX, "default_transaction_isolation": "read committed"}


async def connect(location: PostgresLocation, *, for_verbs: bool = False) -> AsyncConnection[Any]:
    """Open an async connection in autocommit, only for our own statements if `for_verbs`; raises `StoreUnavailable`."""
    connection: FastConnection | HandlersConnection | None = None
    try:
        kind = FastConnection if for_verbs else HandlersConnection
        connection = await kind.connect(location.conninfo, autocommit=True, prepare_threshold=None)
        with bounded(connection, location.reply_timeout):
            is_set = False
            if location.prepare != "never":
                settings = _FOR_VERBS if for_verbs else _FOR_ALL
                is_set = (await connection.execute(_set_if_direct(connection, settings))).rowcount > 0
            if isinstance(connection, FastConnection) and not is_set and await _is_strict(connection):
                connection.frame = READ_COMMITTED_FRAME
        if location.prepare == "always" or is_set:
            connection.prepared = {}  # not by the driver: it would drop all of them after a rollback
            if isinstance(connection, HandlersConnection):
                connection.prepare_threshold = _PREPARE_AFTER
    except BaseException as error:
        raise _not_connected(location, connection, error) from error
    return connection


def connect_blocking(location: PostgresLocation) -> HandlersBlockingConnection:
    """Open a blocking connection in autocommit; raises `StoreUnavailable`."""
    connection: HandlersBlockingConnection | None = None
    try:
        connection = HandlersBlockingConnection.connect(location.conninfo, autocommit=True, prepare_threshold=None)
        if location.prepare != "never":
            with bounded_blocking(connection, location.reply_timeout):
                done = connection.execute(_set_if_direct(connection, _FOR_ALL))
            if done.rowcount or location.prepare == "always":
                connection.prepare_threshold = _PREPARE_AFTER
    except BaseException as error:
        raise _not_connected(location, connection, error) from error
    return connection


async def _is_strict(connection: AsyncConnection[Any]) -> bool:
    """Return whether the database has a stricter default than read committed."""
    (found,) = await (await connection.execute("select current_setting('default_transaction_isolation')")).fetchall()
    return bool(found[0] != "read committed")


def _set_if_direct(connection: Either, settings: Mapping[str, str]) -> bytes:
    """Return a statement for a direct session, with one row; a pooler invents the process id that it sends first."""
    changes = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    return f"select {changes} where pg_backend_pid() = {connection.info.backend_pid}".encode()


def _not_connected(location: PostgresLocation, connection: Either | None, error: BaseException) -> BaseException:
    if connection is not None:
        drop(connection)
    return translate(error, location.url, broken=True) if isinstance(error, psycopg.Error) else error


def is_idle(connection: Either) -> bool:
    """Return whether a connection is open and between transactions."""
    return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE


def has_gone(connection: Either) -> bool:
    """Return whether a connection is unusable: unsolicited bytes on an idle one mean that the server is closing it."""
    if not is_idle(connection):
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def drop(connection: Either) -> None:
    """Close at once, without waiting for the server; safe for either kind and from any event loop."""
    connection.pgconn.finish()
