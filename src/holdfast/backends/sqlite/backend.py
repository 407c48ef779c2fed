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

import sqlite3
import time
from collections.abc import Callable
from functools import partial

from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.record_rows import SqlRecordRows
from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.backends.sql.streams.allocation_store import SqlAllocations
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.backends.sql.streams.foreign import SqlForeignEvents
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.error_map import write_lock_held
from holdfast.backends.sqlite.handler_transaction import SqliteTransactions
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.jobs import SqliteExtender, SqliteJobs, facts
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.notifier import SqliteNotifier
from holdfast.backends.sqlite.runners import SessionRunner
from holdfast.backends.sqlite.schema import SqliteSchema
from holdfast.backends.sqlite.streams import SqliteEvents
from holdfast.backends.sqlite.using import SqliteCallers
from holdfast.backends.sqlite.verbs.fetch import fetch
from holdfast.backends.sqlite.versions import check_version
from holdfast.concurrency.connection_thread import ConnectionThread
from holdfast.concurrency.priority_lock import PriorityLock
from holdfast.errors import StoreUnavailable
from holdfast.model.steady_clock import Steady
from holdfast.store.backend_over_parts import BackendOverParts, StoreParts, StreamParts
from holdfast.store.capabilities import Capabilities
from holdfast.store.database_file import prepare_file
from holdfast.store.jobs_over_rows import InsightOverRows, QueuesOverRows
from holdfast.store.record_rows import RecordsOverRows
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Runner


def host_clock() -> int:
    """Return the clock of a SQLite store: the host's, in microseconds since 1970, read while the write lock is held."""
    return time.time_ns() // 1000


_DURABILITY = {
    "full": "every commit is synced to disk before it is acknowledged (synchronous=FULL)",
    "normal": "a power loss may undo the last acknowledged commits (synchronous=NORMAL)",
}


class SqliteParts(StoreParts):
    """The connections and threads of one process."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int]) -> None:
        self._location = location
        self._clock = clock
        # The extending thread and the heartbeats of nodes go first: leases and shares are lost if they wait too long.
        self.gate = self.owner = PriorityLock(location.busy_timeout, partial(write_lock_held, location.busy_timeout))
        self._memory = Connection(location, clock) if location.path is None else None
        self.writer = ConnectionThread(lambda: self.connect(checkpoints=True), "sqlite-writer")
        self.reader = ConnectionThread(self.connect, "sqlite-reader")
        # The reporter checkpoints: an idle node writes nothing else. In a thread that it shared with the leader, a
        # heartbeat would wait behind the leader's verbs while the next handler's transaction takes the write lock.
        reporter = ConnectionThread(lambda: self.connect(checkpoints=True), "sqlite-reporter")
        leader = ConnectionThread(self.connect, "sqlite-leader")
        in_memory = self._memory is not None
        self.notifier = notifier = SqliteNotifier(None if in_memory else self.connect)
        notify = notifier.notify
        runner_of = partial(
            SessionRunner, reader=self.reader, gate=self.gate, gated_reads=in_memory, became_ready=notify
        )
        self.runner = runner_of(self.writer)
        self._reports = runner_of(reporter, without_waking=notifier.without_waking)
        leading = runner_of(leader, without_waking=notifier.without_waking)
        self.callers = SqliteCallers(location, clock, notify)
        self.rows = SqliteJobRows(Steady() if clock is host_clock else None)  # a test's clock may jump on purpose
        self.transactions = SqliteTransactions(
            lambda: ConnectionThread(self.connect, "sqlite-handler"),
            self.gate,
            fenced_verbs(self.rows),
            lambda _: notify(),
        )
        self._closing = (notifier, self.transactions, reporter, leader, self.reader, self.writer)
        self.jobs = SqliteJobs(self.runner, self.rows, notifier.notify_ends)
        self.queues = QueuesOverRows(self.runner, self.rows)
        self.records = RecordsOverRows(self.runner, SqlRecordRows())
        self.schedules = SchedulesOverRows(self.runner, SqlScheduleRows(), self.jobs.inserter, notify)
        self.insight = InsightOverRows(self.runner, self.rows, facts(location))
        self.schema = SqliteSchema(self.runner, location)
        self.streams = StreamParts(
            SqliteEvents(self.runner, notify),
            SqlConsumers(self.runner, self.transactions, fetch),
            SqlAllocations(leading, self._reports.write),
            SqlForeignEvents(self.runner),
            joined=lambda using: SqliteEvents(self.callers.runner(using), notify),
        )

    def jobs_over(self, runner: Runner) -> SqliteJobs:  # noqa: D102
        return SqliteJobs(runner, self.rows)

    def connect(self, *, checkpoints: bool = False) -> Connection:
        """Open a connection to the file; an in-memory database has one connection, which is shared."""
        return self._memory or Connection(self._location, self._clock, checkpoints=checkpoints)

    def extender(self) -> SqliteExtender:
        """Open the extending thread's connection."""
        connection = self.connect(checkpoints=True)  # an idle node writes little except its heartbeat
        return SqliteExtender(connection, self._reports, owns=self._memory is None)

    async def close(self) -> None:
        """Close everything."""
        for part in self._closing:
            part.close()


class SqliteBackend(BackendOverParts[SqliteParts]):
    """`Backend` and `Transactions` on SQLite."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int]) -> None:
        super().__init__(location.url, location.full_url, lambda: SqliteParts(location, clock))
        self._location = location
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

    async def open(self, *, install: bool = True) -> None:  # noqa: D102
        check_version()
        path = self._location.path
        if path is None:
            install = True  # a database in memory begins empty in every process: there is none to be mistaken for
        elif install:
            prepare_file(path)
        elif not path.exists():
            raise StoreUnavailable(
                f"there is no database at {path}: the first enqueue creates it, or `holdfast schema install`"
            )
        else:
            await self.schema.check()  # through a connection that does not change another program's file
        await super().open(install=install)

    def extender(self) -> SqliteExtender:  # noqa: D102
        return self._parts.here.extender()


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> SqliteBackend:
    """Return the backend of a `sqlite:` URL, not yet opened."""
    return SqliteBackend(SqliteLocation.parse(url), clock or host_clock)
