"""Where the verbs are run."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from holdfast.backends.sqlite.connection import Connection, Tx
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.error_map import translate
from holdfast.backends.sqlite.transactions import current
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.concurrency.caller_thread import calling_thread
from holdfast.concurrency.uncancellable import uncancellable

T = TypeVar("T")


class SessionRunner:
    """Runs each verb in a transaction of its own, or inside the transaction that the calling handler holds open."""

    def __init__(
        self, writer: ConnectionThread, reader: ConnectionThread, gate: WriteQueue, *, gated_reads: bool
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._gate = gate
        self._gated_reads = gated_reads

    def write(self, work: Callable[[Tx], T]) -> Awaitable[T]:
        """Do `work` under the write lock."""
        joined = self._joined(work)
        if joined is not None:
            return joined

        return self._writer.run(lambda connection: self._transact(connection, work))

    def _transact(self, connection: Connection, work: Callable[[Tx], T]) -> T:
        with self._gate.passage(), connection.write() as tx:
            return work(tx)

    def read(self, work: Callable[[Tx], T]) -> Awaitable[T]:
        """Do `work` in one snapshot."""
        joined = self._joined(work)
        if joined is not None:
            return joined
        if self._gated_reads:
            return self.write(work)

        def look(connection: Connection) -> T:
            with connection.read() as tx:
                return work(tx)

        return self._reader.run(look)

    def _joined(self, work: Callable[[Tx], T]) -> Awaitable[T] | None:
        transaction = current.get()
        if transaction is None or not transaction.is_entered or not transaction.belongs_to(self._gate):
            return None

        def join(connection: Connection) -> T:
            tx = connection.tx()
            with tx.savepoint():
                return work(tx)

        return transaction.session.run(transaction.guard(join))


class FirstRunner(SessionRunner):
    """Runs the verbs of nodes and their leader.

    A report that comes late costs its node all it holds. So it waits neither in the writer's thread, behind verbs that
    wait for transactions of handlers, nor behind others at the gate. And it wakes nobody here: what nodes write most is
    that they live, and if that were a hint to themselves, each report would bring about the next.
    """

    def __init__(
        self,
        writer: ConnectionThread,
        reader: ConnectionThread,
        gate: WriteQueue,
        *,
        gated_reads: bool,
        unheard: Callable[[Connection], AbstractContextManager[None]],
    ) -> None:
        super().__init__(writer, reader, gate, gated_reads=gated_reads)
        self._unheard = unheard

    def _transact(self, connection: Connection, work: Callable[[Tx], T]) -> T:
        with self._gate.passage(first=True), ExitStack() as after, connection.write() as tx:
            after.enter_context(self._unheard(connection))  # from inside the transaction until after its commit
            return work(tx)


class CallersRunner:
    """Runs each verb at once on the caller's own connection, inside the transaction that the caller has open."""

    def __init__(self, raw: sqlite3.Connection, now: Callable[[], int], check: Callable[[], None]) -> None:
        self._raw = raw
        self._now = now
        self._check = check

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Do `work` now: here, or in the thread that waits for this call, to which the connection belongs."""
        thread = calling_thread()
        if thread is None:
            return self.run(work)
        return await uncancellable(thread.run(lambda: self.run(work)))

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Do `work` now."""
        return await self.write(work)

    def run(self, work: Callable[[Tx], T]) -> T:
        """Do `work` now, undone as a whole if it raises; raises `ConfigError` if the connection cannot be used."""
        self._check()
        tx = Tx(self._raw, self._now())
        try:
            with _plain_rows(self._raw), tx.savepoint():
                return work(tx)
        except sqlite3.Error as error:
            raise translate(error, "the caller's connection") from error


@contextmanager
def _plain_rows(raw: sqlite3.Connection) -> Generator[None]:
    """Have rows as tuples of str, whatever the caller makes of them."""
    row_factory, text_factory = raw.row_factory, raw.text_factory
    raw.row_factory, raw.text_factory = None, str
    try:
        yield
    finally:
        raw.row_factory, raw.text_factory = row_factory, text_factory
