"""The connection of the thread that extends leases."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from holdfast.backends.mysql.connecting import connect_blocking
from holdfast.backends.mysql.driver import BEGIN, BlockingConnection, drop, has_gone, is_open
from holdfast.backends.mysql.error_map import DriverError, translate
from holdfast.backends.mysql.execute import Session, drive_blocking
from holdfast.backends.mysql.job_rows import MysqlJobRows
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.mysql.verbs.extend import extend_many
from holdfast.backends.sql.extender import SqlExtender
from holdfast.model.lease_rules import SILENCE
from holdfast.store.steps import Ready, Verb

T = TypeVar("T")
_ERRORS: tuple[type[Exception], ...] = (*DriverError, OSError)


class MysqlExtender(SqlExtender):
    """`Extender`: holds a connection from the start, and reconnects when it breaks.

    It never waits for a row: extensions skip locked ones, and heartbeats are in separate rows.
    """

    def __init__(self, location: MysqlLocation, statements: MysqlStatements) -> None:
        super().__init__(MysqlJobRows(), extend_many)
        self._location = location
        self._statements = statements
        self._connection: BlockingConnection | None = connect_blocking(location)

    def write(self, verb: Verb[T], timeout: timedelta) -> T:
        """Run a verb in one transaction, within twice the `timeout`."""
        connection = self._connection
        if connection is None or has_gone(connection):
            self.close()
            connection = self._connection = connect_blocking(self._location)
        connection.set_read_timeout(max(1.0, SILENCE * timeout.total_seconds()))
        session = Session(self._statements, begin=[BEGIN], is_alone=True)
        try:
            result = drive_blocking(connection, session, verb(), Ready())
            if session.has_begun and not session.has_committed:
                session.is_committing = True
                connection.ask(["commit"])
        except _ERRORS as error:
            broken = not is_open(connection)
            self.close()  # the server rolls back
            raise translate(error, self._location.url, broken=broken, committing=session.is_committing) from error
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
