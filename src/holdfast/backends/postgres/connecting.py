"""Open connections, and tell whether one that lay idle still lives."""

from __future__ import annotations

import select
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.fast_connection import FastConnection
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import bounded, bounded_blocking
from holdfast.backends.postgres.transaction_connection import HandlersConnection

_PREPARE_AFTER = 3
_OWN_PROCESS = b"select pg_backend_pid()"

# A client that vanishes without a word in the middle of statements that it sends together leaves a session that is not
# idle in its transaction, so that no timeout ends it, and what it has locked stays so for two hours: 25 s with these.
_KEEPALIVES = b"set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; "

# A prepared statement is planned for a limit that is not known, so for a tenth of the table: with a million jobs ready
# the server would compile the plan anew each time, for longer than the statement takes.
_NO_COMPILING = _KEEPALIVES + b"set jit = off"

# The plan of a prepared statement is kept. One that was made while the tables were nearly empty would read the whole of
# ready at every claim once they are full, until the server happens to plan anew: 500 ms, not 5, with 200,000 jobs.
_BY_INDEX = _NO_COMPILING + b"; set enable_seqscan = off; set enable_bitmapscan = off"

# A stricter default of the database would break verbs off in favour of one another, and they are written for this one.
# Behind a pooler it stays in force for a verb that is a lone statement, which is then repeated; transactions of verbs
# say how they begin. A handler's transaction is its own: there the database's default stands.
_FOR_VERBS = _BY_INDEX + b"; set default_transaction_isolation = 'read committed'"


async def connect(location: PostgresLocation, *, for_verbs: bool = False) -> AsyncConnection[Any]:
    """Open an async connection in autocommit, only for our own statements if `for_verbs`; raises `StoreUnavailable`."""
    connection: AsyncConnection[Any] | None = None
    try:
        kind = FastConnection if for_verbs else HandlersConnection
        connection = await kind.connect(location.conninfo, autocommit=True, prepare_threshold=_threshold(location))
        if location.prepare != "never":
            with bounded(connection, location.reply_timeout):
                found = await (await connection.execute(_OWN_PROCESS)).fetchone()
                if _is_direct(connection, found):
                    await connection.execute(_FOR_VERBS if for_verbs else _NO_COMPILING)
                    if isinstance(connection, FastConnection):
                        connection.prepared = {}
                        connection.prepare_threshold = None  # the driver drops all of them after a rollback, ours too
                    else:
                        connection.prepare_threshold = _PREPARE_AFTER
    except BaseException as error:
        raise _not_connected(location, connection, error) from error
    return connection


def connect_blocking(location: PostgresLocation) -> Connection[Any]:
    """Open a blocking connection in autocommit; raises `StoreUnavailable`."""
    connection: Connection[Any] | None = None
    try:
        connection = Connection[Any].connect(location.conninfo, autocommit=True, prepare_threshold=_threshold(location))
        if location.prepare != "never":
            with bounded_blocking(connection, location.reply_timeout):
                if _is_direct(connection, connection.execute(_OWN_PROCESS).fetchone()):
                    connection.execute(_NO_COMPILING)
                    connection.prepare_threshold = _PREPARE_AFTER
    except BaseException as error:
        raise _not_connected(location, connection, error) from error
    return connection


def _not_connected(
    location: PostgresLocation, connection: AsyncConnection[Any] | Connection[Any] | None, error: BaseException
) -> BaseException:
    if connection is not None:
        drop(connection)
    return translate(error, location.url, broken=True) if isinstance(error, psycopg.Error) else error


def _threshold(location: PostgresLocation) -> int | None:
    """Return after how many times the driver prepares a statement, unless more is known of the session."""
    return _PREPARE_AFTER if location.prepare == "always" else None


def _is_direct(connection: AsyncConnection[Any] | Connection[Any], found: Any) -> bool:
    """Tell whether the session is our own: a pooler makes up the process number that it tells at the start."""
    return found is not None and found[0] == connection.info.backend_pid


def is_idle(connection: AsyncConnection[Any] | Connection[Any]) -> bool:
    """Tell whether a connection is open and between transactions."""
    return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE


def has_gone(connection: AsyncConnection[Any] | Connection[Any]) -> bool:
    """Tell whether an idle connection is not to be used: a server that has something to say unasked says farewell."""
    if not is_idle(connection):
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def drop(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Close at once, without a word of farewell awaited; safe for either kind and from any loop."""
    connection.pgconn.finish()
