"""The connection of the thread that extends leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg import Connection

from holdfast.backends.postgres.connecting import connect_blocking, drop, has_gone
from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.execute import drive_blocking
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded_blocking
from holdfast.backends.postgres.verbs.extend import extend_many
from holdfast.backends.sql.streams import nodes
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.job import Lease
from holdfast.store.steps import Ready, Steps
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import Extension, WorkerHeartbeat
from holdfast.store.verbs.job_views import cancel_asked
from holdfast.store.verbs.maintenance import heartbeat

T = TypeVar("T")
_TIMEOUT = timedelta(seconds=5)
_SHARE = 8  # of the lease duration: a longer statement is cancelled, so that another attempt is still in time
_HEARTBEATS = 4  # that fit into the time after which a node fences itself, so that one may be cancelled without harm
_SILENCE = 2  # times that, at least a second: the server did not cancel the statement, so the connection is dead


class PostgresExtender:
    """`Extender` on PostgreSQL: holds a connection from the start, and reconnects when it breaks.

    The statement timeout is set inside each transaction: behind a pooler, session settings are not ours to keep.
    """

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        self._location = location
        self._statements = statements
        self._rows = PostgresJobRows()
        self._connection: Connection[Any] | None = connect_blocking(location)

    def _transact(self, steps: Steps[T], reply_timeout: timedelta = _TIMEOUT) -> T:
        connection = self._connection
        if connection is None or has_gone(connection):
            self.close()
            connection = self._connection = connect_blocking(self._location)
        committing = False
        milliseconds = max(100, int(reply_timeout.total_seconds() * 1000))
        silence = max(1000, _SILENCE * milliseconds)
        try:
            with bounded_blocking(connection, silence / 1000):
                # A process that is stopped before the commit would lock the rows of all its leases against a rescue.
                connection.execute(
                    f"begin isolation level read committed; set local statement_timeout = {milliseconds}; "
                    f"set local idle_in_transaction_session_timeout = {silence}".encode()
                )
                result = drive_blocking(connection, self._statements, steps, Ready())
                committing = True
                connection.execute(b"commit")
        except psycopg.Error as error:
            broken = connection.closed
            self.close()
            raise translate(error, self._location.url, broken=broken, committing=committing) from error
        except BaseException:
            self.close()
            raise
        return result

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:  # noqa: D102 - the port states it
        return self._transact(extend_many(leases, duration), min(_TIMEOUT, duration / _SHARE))

    def cancel_asked(self, worker_id: str) -> list[Lease]:  # noqa: D102
        return self._transact(cancel_asked(self._rows, worker_id))

    def heartbeat(self, worker: WorkerHeartbeat) -> None:  # noqa: D102
        self._transact(heartbeat(self._rows, worker))

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        return self._transact(nodes.heartbeat(node, timing), min(_TIMEOUT, timing.self_fence / _HEARTBEATS))

    def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return self._transact(nodes.owned(node))

    def close(self) -> None:  # noqa: D102
        if self._connection is not None:
            drop(self._connection)
            self._connection = None
