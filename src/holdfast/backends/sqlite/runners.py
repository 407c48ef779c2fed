"""Runners: execute verbs in a transaction of the right connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from holdfast.backends.sqlite.connection import Connection, Tx
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.error_map import translate
from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.handler_transaction import SqliteAsyncTransaction, SqliteBlockingTransaction
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.concurrency.caller_thread import calling_thread
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.store.handler_transaction import entered
from holdfast.store.steps import Ready, Verb

T = TypeVar("T")


class SessionRunner:
    """Runs each verb in a separate transaction, or inside the transaction that the calling handler holds open."""

    def __init__(
        self,
        writer: ConnectionThread,
        reader: ConnectionThread,
        gate: WriteQueue,
        *,
        gated_reads: bool,
        became_ready: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._gate = gate
        self._gated_reads = gated_reads
        self._became_ready = became_ready

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb under the write lock."""
        ready = Ready()
        joined = self._joined(verb, ready)
        if joined is None:
            joined = self._writer.run(lambda connection: self._transact(connection, verb, ready))
        result = await joined
        if ready:  # early inside a handler's transaction, but a woken worker waits for the write lock
            self._became_ready()
        return result

    async def once(self, verb: Verb[T]) -> T:
        """Run a verb under the write lock."""
        return await self.write(verb)

    def _transact(self, connection: Connection, verb: Verb[T], ready: Ready) -> T:
        with self._gate.passage(), connection.write() as tx:
            return drive(tx, verb(), ready)

    async def read(self, verb: Verb[T]) -> T:
        """Run a verb in one snapshot."""
        joined = self._joined(verb, Ready())
        if joined is not None:
            return await joined
        if self._gated_reads:
            return await self.write(verb)

        def look(connection: Connection) -> T:
            with connection.read() as tx:
                return drive(tx, verb(), Ready())

        return await self._reader.run(look)

    async def look(self, verb: Verb[T]) -> T:
        """Run a verb in one snapshot."""
        return await self.read(verb)

    def _joined(self, verb: Verb[T], ready: Ready) -> Awaitable[T] | None:
        transaction = entered(self._gate)
        if not isinstance(transaction, SqliteAsyncTransaction | SqliteBlockingTransaction):
            return None

        def join(connection: Connection) -> T:
            tx = connection.tx()
            with tx.savepoint():
                return drive(tx, verb(), ready)

        return transaction.joining(join)


class FirstRunner(SessionRunner):
    """Runs the verbs of nodes and their leader.

    A late heartbeat costs its node all its shares. So it waits neither in the writer's thread, behind verbs that wait
    for handlers' transactions, nor behind other writers in the write queue. And it wakes no listener of this process:
    otherwise each heartbeat would notify its own node and cause the next one.
    """

    def __init__(
        self,
        writer: ConnectionThread,
        reader: ConnectionThread,
        gate: WriteQueue,
        *,
        gated_reads: bool,
        became_ready: Callable[[], None],
        without_waking: Callable[[Connection], AbstractContextManager[None]],
    ) -> None:
        super().__init__(writer, reader, gate, gated_reads=gated_reads, became_ready=became_ready)
        self._without_waking = without_waking

    def _transact(self, connection: Connection, verb: Verb[T], ready: Ready) -> T:
        with self._gate.passage(first=True), ExitStack() as after, connection.write() as tx:
            after.enter_context(self._without_waking(connection))  # from inside the transaction until after its commit
            return drive(tx, verb(), ready)


class CallersRunner:
    """Runs each verb immediately on the caller's connection, inside the caller's open transaction."""

    def __init__(
        self,
        raw: sqlite3.Connection,
        now: Callable[[], int],
        check: Callable[[], None],
        became_ready: Callable[[], None],
    ) -> None:
        self._raw = raw
        self._now = now
        self._check = check
        self._became_ready = became_ready

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb now: in this thread, or in the thread that waits for this call and owns the connection."""
        thread = calling_thread()
        if thread is None:
            return self.run(verb)
        return await uncancellable(thread.run(lambda: self.run(verb)))

    async def once(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)

    async def look(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)

    async def read(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)

    def run(self, verb: Verb[T]) -> T:
        """Run a verb now; undo all of it if it raises. Raises `ConfigError` if the connection cannot be used."""
        self._check()
        tx = Tx(self._raw, self._now())
        ready = Ready()
        try:
            with _plain_rows(self._raw), tx.savepoint():
                result = drive(tx, verb(), ready)
        except sqlite3.Error as error:
            raise translate(error, "the caller's connection") from error
        if ready:
            self._became_ready()
        return result


@contextmanager
def _plain_rows(raw: sqlite3.Connection) -> Generator[None]:
    """Read rows as tuples and texts as str, whatever factories the caller has set."""
    row_factory, text_factory = raw.row_factory, raw.text_factory
    raw.row_factory, raw.text_factory = None, str
    try:
        yield
    finally:
        raw.row_factory, raw.text_factory = row_factory, text_factory
