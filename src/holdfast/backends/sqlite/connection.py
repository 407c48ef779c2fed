"""One connection to the database file, its transactions and the statements in them.

Writers begin with `begin immediate`: a transaction that reads first and writes later fails at once, whatever the busy
timeout, if another connection has written in between. A connection belongs to the process that opened it: a forked
child must not use it, and must not close it either, because closing would drop the parent's locks on the file.

SQLite has no queue for the write lock between processes: each process polls. SQLite's own busy handler polls less and
less often, down to once in 100 ms. Another process that writes without a pause holds the lock for 98 % of the time, and
such rare polls miss the moments when it is free: we measured waits of 1.7 s on average and of 7.5 s at most, long
enough for the leases and shares of healthy processes to expire. So `begin` polls by itself, every 8 ms on average, for
as long as it takes. Not more often: eight processes that polled every 1 to 2 ms slowed one another down. The interval
is random, so that two processes cannot stay out of step forever.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, LiteralString, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.backends.sqlite.error_map import is_busy, translate
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.errors import StoreError

T = TypeVar("T")
Parameters = Mapping[str, object] | Sequence[object]
_NOTHING: tuple[object, ...] = ()

# The comment makes the text unique: sqlite3 caches prepared statements by text, and preparing is what the authorizer
# checks, so a handler's plain "commit" would find the permitted statement in the cache.
_COMMIT = "commit /* holdfast */"
_ROLLBACK = "rollback /* holdfast */"

_ASK_AGAIN = (0.001, 0.015)  # shortest and longest interval between two polls, in seconds

_inherited: list[sqlite3.Connection] = []
_encode = msgspec.json.encode
numbers = msgspec.json.Decoder(list[int]).decode


def as_json(value: Any) -> str:
    """Return a value as JSON text: the form in which a statement takes a list."""
    return _encode(value).decode()


class Tx:
    """An open transaction. `now` is the store's clock, read after the transaction began."""

    def __init__(self, raw: sqlite3.Connection, now: int) -> None:
        self.raw = raw
        self.now = now

    def run(self, statement: str, parameters: Parameters = _NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        return self.raw.execute(STATEMENTS[statement], parameters).rowcount

    def rows(self, statement: str, parameters: Parameters = _NOTHING) -> list[Any]:
        """Return all rows."""
        return self.raw.execute(STATEMENTS[statement], parameters).fetchall()

    def each(self, statement: str, parameters: Parameters = _NOTHING) -> Iterator[Any]:
        """Iterate over the rows, read one by one; rows after the last one taken are not read."""
        return self.raw.execute(STATEMENTS[statement], parameters)

    def value(self, statement: str, parameters: Parameters = _NOTHING) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.rows(statement, parameters)
        return rows[0][0] if rows else None

    @contextmanager
    def at_most(self, size: int) -> Generator[None]:
        """Fail statements in the block with `sqlite3.DataError` before they build a text of more than `size` bytes."""
        usual = self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        try:
            yield
        finally:
            self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, usual)

    def many(self, statement: str, rows: Iterable[Parameters]) -> int:
        """Run a statement for each row of parameters; return how many rows it changed."""
        return self.raw.executemany(STATEMENTS[statement], rows).rowcount

    def pragma(self, name: LiteralString) -> Any:
        """Return the value of a SQLite pragma."""
        return self.raw.execute(f"pragma {name}").fetchone()[0]

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Undo the writes of the block if it raises; the transaction stays open."""
        self.raw.execute("savepoint holdfast")
        try:
            yield
        except BaseException:
            if self.raw.in_transaction:
                self.raw.execute("rollback to holdfast")
                self.raw.execute("release holdfast")
            raise
        self.raw.execute("release holdfast")


@contextmanager
def looking_at(path: Path, *, timeout: float) -> Generator[Tx]:
    """Read a file without changing it: a `Connection` would switch it to a write-ahead log permanently."""
    try:
        uri = f"file:{quote(os.fsencode(path))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)) as raw:
            raw.execute("pragma trusted_schema = off")
            yield Tx(raw, 0)
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


class Connection:
    """A connection of this process, with the settings that the guarantees depend on."""

    def __init__(self, location: SqliteLocation, clock: Callable[[], int], *, checkpoints: bool = False) -> None:
        self.where = str(location.path or "the in-memory database")
        self._clock = clock
        self._process = os.getpid()
        self._in_control = False
        self._timeout = location.busy_timeout
        self._set_busy_timeout = f"pragma busy_timeout = {round(location.busy_timeout * 1000)}"
        try:
            self.raw = sqlite3.connect(
                location.path or ":memory:",
                timeout=location.busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            self._configure(location, checkpoints=checkpoints)
            self.raw.set_authorizer(self._authorize)
        except sqlite3.Error as error:
            raise translate(error, self.where) from error

    def _configure(self, location: SqliteLocation, *, checkpoints: bool) -> None:
        execute = self.raw.execute
        if location.path is not None:
            # If several processes open a new file at once, SQLite fails all except one.
            journal = self._when_free(lambda: execute("pragma journal_mode = wal").fetchone()[0])
            if journal != "wal":
                message = (
                    f"{self.where}: SQLite cannot use a write-ahead log here (journal mode is {journal}): "
                    "network file systems are not supported; put the database on a local disk"
                )
                raise StoreError(message)
        execute(f"pragma synchronous = {location.synchronous}")
        execute("pragma trusted_schema = off")
        execute("pragma mmap_size = 0")  # a mapped file turns an I/O error into SIGBUS
        # Few connections of a process checkpoint the log: several at once would only get in each other's way.
        execute(f"pragma wal_autocheckpoint = {1000 if checkpoints else 0}")

    def _authorize(self, action: int, *_: object) -> int:
        """Deny begin, commit and rollback to a handler's statements; savepoints are allowed."""
        denied = action == sqlite3.SQLITE_TRANSACTION and not self._in_control
        return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK

    def _control(self, statement: str) -> None:
        self._in_control = True
        try:
            self.raw.execute(statement)
        finally:
            self._in_control = False

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            message = f"{self.where}: this connection was opened by process {self._process} and cannot be used here"
            raise StoreError(message)

    def write(self) -> AbstractContextManager[Tx]:
        """Open a write transaction; commit at the end of the block, roll back if it raises."""
        return self._transaction(self.begin)

    def read(self) -> AbstractContextManager[Tx]:
        """Open a read transaction, which sees one snapshot."""
        return self._transaction(lambda: self._control("begin deferred"))

    @contextmanager
    def _transaction(self, begin: Callable[[], None]) -> Generator[Tx]:
        self._check_process()
        try:
            begin()
            yield self.tx()
        except BaseException as error:
            self._undo(error)
            raise
        self.commit()

    def _undo(self, error: BaseException, *, committing: bool = False) -> None:
        """Roll back after any error, also MemoryError: a transaction left open would block every writer.

        Raises an error of ours for one of SQLite. Not a context manager: three of them cost 4 µs per transaction.
        """
        self.rollback()
        if isinstance(error, sqlite3.Error):
            raise translate(error, self.where, committing=committing) from error

    def begin(self) -> None:
        """Begin a write transaction as soon as the write lock is free; raise after the busy timeout."""
        self._check_process()
        try:
            self.raw.execute("pragma busy_timeout = 0")  # 3 µs
            try:
                self._when_free(lambda: self._control("begin immediate"))
            finally:
                self.raw.execute(self._set_busy_timeout)
        except BaseException as error:
            self._undo(error)
            raise

    def _when_free(self, attempt: Callable[[], T]) -> T:
        """Repeat a statement while another connection holds the lock; raise after the busy timeout."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > give_up:
                    raise
                time.sleep(random.uniform(*_ASK_AGAIN))  # noqa: S311

    def tx(self) -> Tx:
        """Return the transaction that `begin` opened."""
        return Tx(self.raw, self._clock())

    def commit(self) -> None:
        """Commit; raises `OutcomeUnknown` if the commit may or may not have happened."""
        try:
            self._control(_COMMIT)
        except BaseException as error:
            self._undo(error, committing=True)
            raise

    def rollback(self) -> None:
        """Roll back, unless SQLite has rolled back by itself, as it does when the disk is full."""
        if self.raw.in_transaction:
            self._control(_ROLLBACK)

    def interrupt(self) -> None:
        """Interrupt the running statement, if there is one; callable from any thread."""
        self.raw.interrupt()

    def close(self) -> None:
        """Close; in a forked child, keep the parent's connection open and unused."""
        if os.getpid() == self._process:
            self.raw.close()
        else:
            _inherited.append(self.raw)
