"""Runners: execute verbs in a transaction of the right connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.handler_transaction import SqliteTransaction
from holdfast.concurrency.connection_thread import ConnectionThread
from holdfast.concurrency.priority_lock import PriorityLock
from holdfast.store.handler_transaction import entered, is_inside
from holdfast.store.steps import PlainRunner, Ready, Verb

T = TypeVar("T")


class SessionRunner(PlainRunner):
    """Runs each verb in a separate transaction, or inside the transaction that the calling handler holds open.

    With `without_waking`, it runs the verbs of nodes and their leader. A late heartbeat costs its node all its shares.
    So it waits neither in the thread of other writers, behind verbs that wait for handlers' transactions, nor behind
    them in the write queue. And it wakes no listener of this process: otherwise each heartbeat would notify its own
    node and cause the next one.
    """

    def __init__(
        self,
        writer: ConnectionThread[Connection],
        reader: ConnectionThread[Connection],
        gate: PriorityLock,
        *,
        gated_reads: bool,
        became_ready: Callable[[], None],
        without_waking: Callable[[Connection], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._gate = gate
        self._gated_reads = gated_reads
        self._became_ready = became_ready
        self._without_waking = without_waking

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb under the write lock."""
        ready = Ready()
        joined = self._joined(verb, ready)
        if joined is None:
            joined = self._writer.run(lambda connection: self.transact(connection, verb, ready))
        result = await joined
        if ready:  # early inside a handler's transaction, but a woken worker waits for the write lock
            self._became_ready()
            if (transaction := entered(self._gate, SqliteTransaction)) is not None:
                transaction.ready.add_all(ready)
        return result

    @property
    def joins(self) -> bool:
        """Whether the current call runs inside a handler's transaction."""
        return is_inside(self._gate)

    def transact(self, connection: Connection, verb: Verb[T], ready: Ready) -> T:
        """Run a verb under the write lock, in this thread."""
        if self._without_waking is None:
            with self._gate.passage(), connection.write() as tx:
                return drive(tx, verb(), ready)
        with self._gate.passage(first=True), ExitStack() as after, connection.write() as tx:
            after.enter_context(self._without_waking(connection))  # from inside the transaction until after its commit
            return drive(tx, verb(), ready)

    async def read(self, verb: Verb[T]) -> T:
        """Run a verb in one snapshot."""
        joined = self._joined(verb, Ready())
        if joined is not None:
            return await joined
        if self._gated_reads:
            return await self.write(verb)
        return await self._reader.run(lambda connection: self.snapshot(connection, verb))

    def snapshot(self, connection: Connection, verb: Verb[T]) -> T:
        """Run a verb in one snapshot, in this thread."""
        if self._gated_reads:
            return self.transact(connection, verb, Ready())
        with connection.read() as tx:
            return drive(tx, verb(), Ready())

    def _joined(self, verb: Verb[T], ready: Ready) -> Awaitable[T] | None:
        if (transaction := entered(self._gate, SqliteTransaction)) is None:
            return None

        def join(connection: Connection) -> T:
            tx = connection.tx()
            with tx.savepoint():
                return drive(tx, verb(), ready)

        return transaction.joining(join)
