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
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from pathlib import Path

from holdfast.backends.sqlite.clock import Steady, host_clock
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.fenced_verbs import FENCED
from holdfast.backends.sqlite.handler_transaction import SqliteAsyncTransaction, SqliteBlockingTransaction
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.jobs import SqliteExtender, SqliteInsight, SqliteJobs
from holdfast.backends.sqlite.location import SqliteLocation, prepare_file
from holdfast.backends.sqlite.notifier import SqliteNotifier
from holdfast.backends.sqlite.runners import CallersRunner, FirstRunner, SessionRunner
from holdfast.backends.sqlite.schema import SqliteSchema
from holdfast.backends.sqlite.streams import SqliteAllocations, SqliteStreams
from holdfast.backends.sqlite.transactions import SqliteTransactions
from holdfast.backends.sqlite.versions import check_version
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.errors import ConfigError
from holdfast.model.job import Lease
from holdfast.store.capabilities import Capabilities
from holdfast.store.handler_transaction import entered
from holdfast.store.jobs_over_rows import QueuesOverRows
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

_DURABILITY = {
    "full": "every commit is synced to disk before it is acknowledged (synchronous=FULL)",
    "normal": "a power loss may undo the last acknowledged commits (synchronous=NORMAL)",
}
_inherited: list[_Parts] = []


class _Parts:
    """The connections and threads of one process. A forked child opens new ones and leaves its parent's untouched."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int]) -> None:
        self.process = os.getpid()
        self._location = location
        self._clock = clock
        self.gate = WriteQueue(location.busy_timeout)
        self._memory = Connection(location, clock) if location.path is None else None
        self.writer = ConnectionThread(lambda: self.connect(checkpoints=True), "writer")
        self.reader = ConnectionThread(self.connect, "reader")
        in_memory = self._memory is not None
        self.notifier = SqliteNotifier(None if in_memory else self.connect)
        self.runner = SessionRunner(
            self.writer, self.reader, self.gate, gated_reads=in_memory, became_ready=self.notifier.notify
        )
        self._reporter = ConnectionThread(
            lambda: self.connect(checkpoints=True), "reporter"
        )  # it checkpoints: an idle node writes nothing else
        self._leader = ConnectionThread(self.connect, "leader")
        self.reports, self.leading = (
            FirstRunner(
                session,
                self.reader,
                self.gate,
                gated_reads=in_memory,
                became_ready=self.notifier.notify,
                without_waking=self.notifier.without_waking,
            )
            for session in (self._reporter, self._leader)
        )
        self.transactions = SqliteTransactions(
            lambda: ConnectionThread(self.connect, "handler"), self.gate, FENCED, lambda _: self.notifier.notify()
        )
        steady = Steady() if clock is host_clock else None  # a test's clock may jump on purpose
        self.rows = SqliteJobRows(steady)
        self.jobs = SqliteJobs(self.runner, self.rows)

    def connect(self, *, checkpoints: bool = False) -> Connection:
        """Open a connection to the file; an in-memory database has one connection, which is shared."""
        return self._memory or Connection(self._location, self._clock, checkpoints=checkpoints)

    def extender(self) -> SqliteExtender:
        """Open the extending thread's connection."""
        connection = self.connect(checkpoints=True)  # an idle node writes little except its heartbeat
        return SqliteExtender(
            connection, self.gate, owns=self._memory is None, without_waking=self.notifier.without_waking
        )

    def close(self) -> None:
        """Close everything."""
        self.notifier.close()
        self.transactions.close()
        self._reporter.close()
        self._leader.close()
        self.reader.close()
        self.writer.close()


class SqliteBackend:
    """`Backend` and `Transactions` on SQLite."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int]) -> None:
        self._location = location
        self._clock = clock
        self._of_this_process: _Parts | None = None
        self._opening = threading.Lock()

    @property
    def _parts(self) -> _Parts:
        parts = self._of_this_process
        if parts is not None and parts.process == os.getpid():
            return parts
        if parts is not None:
            _inherited.append(parts)
            self._opening = threading.Lock()  # the parent may have forked while it held the lock
            self._of_this_process = None
        with self._opening:
            parts = self._of_this_process
            if parts is None:
                parts = self._of_this_process = _Parts(self._location, self._clock)
        return parts

    @property
    def url(self) -> str:  # noqa: D102 - the port states the contracts
        return self._location.url

    @property
    def full_url(self) -> str | None:  # noqa: D102
        return self._location.full_url

    @property
    def file(self) -> Path | None:  # noqa: D102
        return self._location.path

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102
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

    @property
    def jobs(self) -> SqliteJobs:  # noqa: D102
        return self._parts.jobs

    @property
    def streams(self) -> SqliteStreams:  # noqa: D102
        parts = self._parts
        allocations = SqliteAllocations(heartbeats=parts.reports, leading=parts.leading)
        return SqliteStreams(parts.runner, parts.transactions, parts.notifier.notify, allocations, self._callers)

    @property
    def queues(self) -> QueuesOverRows:  # noqa: D102
        return QueuesOverRows(self._parts.runner, self._parts.rows)

    @property
    def insight(self) -> SqliteInsight:  # noqa: D102
        return SqliteInsight(self._parts.runner, self._parts.rows, self._location)

    @property
    def schema(self) -> SqliteSchema:  # noqa: D102
        return SqliteSchema(self._parts.runner, self._location)

    @property
    def notifier(self) -> SqliteNotifier:  # noqa: D102
        return self._parts.notifier

    @property
    def transactions(self) -> SqliteBackend:  # noqa: D102
        return self

    async def open(self) -> None:  # noqa: D102
        check_version()
        if self._location.path is not None:
            prepare_file(self._location.path)
        await self.schema.open()

    async def close(self) -> None:  # noqa: D102
        parts, self._of_this_process = self._of_this_process, None
        if parts is None:
            return
        if parts.process == os.getpid():
            parts.close()
        else:
            _inherited.append(parts)

    def extender(self) -> SqliteExtender:  # noqa: D102
        return self._parts.extender()

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[SqliteAsyncTransaction]:  # noqa: D102
        return self._parts.transactions.begin(lease, limit=limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[SqliteBlockingTransaction]:  # noqa: D102
        return self._parts.transactions.begin_blocking(lease, limit=limit)

    def is_inside(self) -> bool:  # noqa: D102
        return entered(self._parts.gate) is not None

    def join(self, using: object) -> SqliteJobs:  # noqa: D102
        return SqliteJobs(self._callers(using), SqliteJobRows())

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:  # noqa: D102
        return self._callers(using).run(lambda: complete(self._parts.rows, lease, result))

    def _callers(self, using: object) -> CallersRunner:
        if not isinstance(using, sqlite3.Connection):
            message = f"using= must be a sqlite3.Connection to {self.url}, not {type(using).__name__}"
            raise ConfigError(message)
        _check_in_transaction(using)
        return CallersRunner(using, self._clock, lambda: self._check_callers(using), self._parts.notifier.notify)

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
