"""Notifications: at once within the process, and across processes by polling.

The server cannot call a client. So a thread asks, while there is a listener, for the last number given to a job, for
the positions of partitions, and for the last ends of jobs. A change only means that a look is worth while.
"""

from __future__ import annotations

from holdfast.backends.mysql.connecting import connect_blocking
from holdfast.backends.mysql.driver import BlockingConnection, drop
from holdfast.backends.mysql.error_map import DriverError
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.errors import HoldfastError
from holdfast.store.local_notifier import LocalNotifier, StopSignal

LOOK_EVERY = 0.02
_AGAIN_AFTER = 1.0
_ERRORS: tuple[type[Exception], ...] = (HoldfastError, *DriverError, OSError)


class MysqlNotifier(LocalNotifier):
    """Notifies this process directly; other processes look."""

    def __init__(self, location: MysqlLocation, statements: MysqlStatements) -> None:
        super().__init__("mysql", self._poll)
        self._location = location
        self._statements = statements
        self._is_suspect = False

    def suspect(self) -> None:
        """Connect again before the next look: after a failover the old server may answer, and never see a change."""
        self._is_suspect = True

    def _poll(self, stop: StopSignal) -> None:
        while not stop.is_set():
            try:
                self._is_suspect = False
                connection = connect_blocking(self._location)
                try:
                    self._watch_changes(connection, stop)
                finally:
                    drop(connection)
            except _ERRORS as error:
                self._logger.debug("cannot look for changes: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _watch_changes(self, connection: BlockingConnection, stop: StopSignal) -> None:
        seen = self._look(connection)
        self.notify()  # for what was written before the first look
        self.notify_ends()
        while not stop.wait(LOOK_EVERY) and not self._is_suspect:
            before, seen = seen, self._look(connection)
            if before[0] != seen[0]:
                self.notify()
            if before[1] != seen[1]:
                self.notify_ends()

    def _look(self, connection: BlockingConnection) -> tuple[object, object]:
        jobs, ends = (connection.ask(self._statements.filled(name, {}))[-1].rows for name in ("last_jobs", "last_ends"))
        return jobs, ends
