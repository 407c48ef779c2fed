"""The connection of the thread that extends leases."""

from __future__ import annotations

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
from holdfast.backends.sql.extender import SqlExtender
from holdfast.model.lease_rules import SILENCE
from holdfast.store.steps import Ready, Verb

T = TypeVar("T")


class PostgresExtender(SqlExtender):
    """`Extender` on PostgreSQL: holds a connection from the start, and reconnects when it breaks.

    The statement timeout is set inside each transaction: behind a pooler, session settings are not ours to keep.
    """

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        super().__init__(PostgresJobRows(), extend_many)
        self._location = location
        self._statements = statements
        self._connection: Connection[Any] | None = connect_blocking(location)

    def write(self, verb: Verb[T], timeout: timedelta) -> T:
        """Run a verb in one transaction whose statements the server cancels after `timeout`."""
        connection = self._connection
        if connection is None or has_gone(connection):
            self.close()
            connection = self._connection = connect_blocking(self._location)
        committing = False
        milliseconds = max(100, int(timeout.total_seconds() * 1000))
        silence = max(1000, SILENCE * milliseconds)
        try:
            with bounded_blocking(connection, silence / 1000):
                # A process that is stopped before the commit would lock the rows of all its leases against a rescue.
                connection.execute(
                    f"begin isolation level read committed; set local statement_timeout = {milliseconds}; "
                    f"set local idle_in_transaction_session_timeout = {silence}".encode()
                )
                result = drive_blocking(connection, self._statements, verb(), Ready())
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

    def read(self, verb: Verb[T], timeout: timedelta) -> T:  # noqa: D102
        return self.write(verb, timeout)

    def close(self) -> None:  # noqa: D102
        if self._connection is not None:
            drop(self._connection)
            self._connection = None
