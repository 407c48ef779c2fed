"""The SQLite backend, and the connection of each of its users.

```text
   event loop        ──▶ writer thread              ──┐
   handlers          ──▶ a thread per transaction   ──┼─ write queue ──▶ the write lock of the file
   nodes, leader     ──▶ one thread each            ──┤  (first)
   extending thread  ──▶ its own connection         ──┘  (first)
   views, reads      ──▶ reader thread              ────────────▶ a snapshot
   watcher           ──▶ pragma data_version
```
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from holdfast.backends.sql.backend import SqlBackend, SqlParts
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.streams.allocation_store import SqlAllocations
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.backends.sql.streams.stream_store import SqlStreams
from holdfast.backends.sqlite.clock import Steady, host_clock
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.jobs import SqliteExtender, SqliteJobs, facts
from holdfast.backends.sqlite.location import SqliteLocation, prepare_file
from holdfast.backends.sqlite.notifier import SqliteNotifier
from holdfast.backends.sqlite.runners import CallersRunner, FirstRunner, SessionRunner
from holdfast.backends.sqlite.schema import SqliteSchema
from holdfast.backends.sqlite.streams import SqliteEvents
from holdfast.backends.sqlite.transactions import SqliteTransactions
from holdfast.backends.sqlite.verbs.fetch import fetch
from holdfast.backends.sqlite.versions import check_version
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.errors import ConfigError
from holdfast.model.job import Lease
from holdfast.store.capabilities import Capabilities
from holdfast.store.jobs_over_rows import InsightOverRows, QueuesOverRows
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

_DURABILITY = {
    "full": "every commit is synced to disk before it is acknowledged (synchronous=FULL)",
    "normal": "a power loss may undo the last acknowledged commits (synchronous=NORMAL)",
}


class SqliteParts(SqlParts):
    """The connections and threads of one process."""

    def __init__(
        self, location: SqliteLocation, clock: Callable[[], int], callers: Callable[[object], CallersRunner]
    ) -> None:
        self._location = location
        self._clock = clock
        self.gate = self.owner = WriteQueue(location.busy_timeout)
        self._memory = Connection(location, clock) if location.path is None else None
        self.writer = ConnectionThread(lambda: self.connect(checkpoints=True), "writer")
        self.reader = ConnectionThread(self.connect, "reader")
        # The reporter checkpoints: an idle node writes nothing else. In a thread that it shared with the leader, a
        # heartbeat would wait behind the leader's verbs while the next handler's transaction takes the write lock.
        reporter = ConnectionThread(lambda: self.connect(checkpoints=True), "reporter")
        leader = ConnectionThread(self.connect, "leader")
        in_memory = self._memory is not None
        self.notifier = notifier = SqliteNotifier(None if in_memory else self.connect)
        notify, self._unheard = notifier.notify, notifier.unheard
        self.runner = SessionRunner(self.writer, self.reader, self.gate, gated_reads=in_memory, became_ready=notify)
        reports, leading = (
            FirstRunner(
                session, self.reader, self.gate, gated_reads=in_memory, became_ready=notify, unheard=self._unheard
            )
            for session in (reporter, leader)
        )
        self.rows = SqliteJobRows(Steady() if clock is host_clock else None)  # a test's clock may jump on purpose
        self.transactions = SqliteTransactions(
            lambda: ConnectionThread(self.connect, "handler"), self.gate, fenced_verbs(self.rows), lambda _: notify()
        )
        self._closing = (notifier, self.transactions, reporter, leader, self.reader, self.writer)
        self.jobs = SqliteJobs(self.runner, self.rows)
        self.queues = QueuesOverRows(self.runner, self.rows)
        self.insight = InsightOverRows(self.runner, self.rows, facts(location))
        self.schema = SqliteSchema(self.runner, location)
        self.streams = SqlStreams(
            SqliteEvents(self.runner, notify),
            SqlConsumers(self.runner, self.transactions, fetch, self.runner.read),
            SqlAllocations(leading, reports.write),
            joined=lambda using: SqliteEvents(callers(using), notify),
        )

    def connect(self, *, checkpoints: bool = False) -> Connection:
        """Open a connection to the file; an in-memory database has one connection, which is shared."""
        return self._memory or Connection(self._location, self._clock, checkpoints=checkpoints)

    def extender(self) -> SqliteExtender:
        """Open the extending thread's connection."""
        connection = self.connect(checkpoints=True)  # an idle node writes little except its heartbeat
        return SqliteExtender(connection, self.gate, owns=self._memory is None, unheard=self._unheard)

    async def close(self) -> None:
        """Close everything."""
        for part in self._closing:
            part.close()


class SqliteBackend(SqlBackend[SqliteParts]):
    """`Backend` and `Transactions` on SQLite."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int]) -> None:
        super().__init__(location, lambda: SqliteParts(location, clock, self._callers))
        self._location = location
        self._clock = clock
        self.file = location.path

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102 - the port states the contracts
        in_memory = self._location.path is None
        return Capabilities(
            store="sqlite",
            version=sqlite3.sqlite_version,
            durability="none: the database is in memory" if in_memory else _DURABILITY[self._location.synchronous],
            notifies=True,
            joins_transactions=True,
            shared=not in_memory,
            one_writer=True,
            refusals={"be shared with another process": "the database is in memory"} if in_memory else {},
        )

    async def open(self) -> None:  # noqa: D102
        check_version()
        if self._location.path is not None:
            prepare_file(self._location.path)
        await super().open()

    def extender(self) -> SqliteExtender:  # noqa: D102
        return self._parts.here.extender()

    def join(self, using: object) -> SqliteJobs:  # noqa: D102
        return SqliteJobs(self._callers(using), self._parts.here.rows)

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:  # noqa: D102
        return self._callers(using).run(lambda: complete(self._parts.here.rows, lease, result))

    def _callers(self, using: object) -> CallersRunner:
        if not isinstance(using, sqlite3.Connection):
            message = f"using= must be a sqlite3.Connection to {self.url}, not {type(using).__name__}"
            raise ConfigError(message)
        _check_in_transaction(using)
        return CallersRunner(using, self._clock, lambda: self._check_callers(using), self._parts.here.notifier.notify)

    def _check_callers(self, using: sqlite3.Connection) -> None:
        """Check that a transaction is open, and on this store's file; call it only in the connection's thread."""
        _check_in_transaction(using)
        try:
            cursor = using.cursor()
            cursor.row_factory = None  # the caller's factory may turn a row into anything
            name = os.fsdecode(cursor.execute("pragma database_list").fetchone()[2])
        except sqlite3.ProgrammingError as error:
            raise _unusable(error) from error
        path = self._location.path
        if path is None or not name or not Path(name).samefile(path):
            message = f"the connection given as using= is open on {name or 'memory'!r}, not on {self.url}"
            raise ConfigError(message)


def _check_in_transaction(using: sqlite3.Connection) -> None:
    """Check that a transaction is open; callable in any thread."""
    try:
        is_open = using.in_transaction
    except sqlite3.ProgrammingError as error:
        raise _unusable(error) from error
    if not is_open:
        message = "the connection given as using= has no open transaction: execute('begin immediate') first"
        raise ConfigError(message)


def _unusable(error: sqlite3.ProgrammingError) -> ConfigError:
    if "thread" not in str(error):
        return ConfigError(f"the connection given as using= cannot be used: {error}")
    return ConfigError(
        "the connection given as using= was opened in another thread: make the call in the thread that opened the "
        "connection, or connect with check_same_thread=False and let only one thread use it at a time"
    )


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> SqliteBackend:
    """Return the backend of a `sqlite:` URL, not yet opened."""
    return SqliteBackend(SqliteLocation.parse(url), clock or host_clock)
