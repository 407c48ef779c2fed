"""A handler's transaction.

A verb that joins it takes effect as a whole or not at all: the server undoes only the statement that has failed, so
each verb begins with a savepoint, and a handler that catches the error may go on.

While the lease's row is locked, extension and rescue skip it, so the lease is safe until the transaction ends. Past its
limit the transaction is rolled back: sessions that wait for its locks must not wait forever. A frozen client cannot
roll back: then the server ends its session, which has been silent for longer than the limit.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, TypeVar

from holdfast.backends.mysql.driver import BEGIN, drop, hang_up, is_being_closed, is_in_transaction, is_open
from holdfast.backends.mysql.error_map import (
    DriverError,
    ends_session,
    is_conflict,
    is_read_only,
    is_refused,
    lacks_savepoint,
    translate,
)
from holdfast.backends.mysql.execute import Session, drive, drive_blocking
from holdfast.backends.mysql.handlers_connection import MysqlHandlersBlockingConnection, MysqlHandlersConnection
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.mysql.verbs.finish import complete_held
from holdfast.backends.sql.server_transaction import ServerTransaction
from holdfast.concurrency.statement_threads import where_it_may_wait
from holdfast.concurrency.timeouts import set_deadline
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import TransactionExpired
from holdfast.model.isolation import READ_COMMITTED
from holdfast.model.job import Lease
from holdfast.model.outcome import Ending
from holdfast.store.handler_transaction import TransactionState
from holdfast.store.steps import Steps
from holdfast.store.values import Verdict

T = TypeVar("T")
_ERRORS: tuple[type[Exception], ...] = (*DriverError, TimeoutError, OSError)


class MysqlTransaction(ServerTransaction[MysqlStatements]):
    """The part that both kinds of transaction share."""

    _joined = 0
    """How many verbs have joined."""

    @property
    def is_closed(self) -> bool:  # noqa: D102
        return not is_open(self.connection)

    def _first(self) -> Session:
        """Return how the transaction begins: the server ends it if its client is silent for longer than the limit."""
        seconds = max(1, math.ceil(self.limit.total_seconds()))
        names = ("wait_timeout", "net_read_timeout", "net_write_timeout")  # between, inside and behind statements
        silences = ", ".join(f"{name} = {seconds}" for name in names)
        begin = [f"set session {silences} /*M!100600 , idle_transaction_timeout = {seconds} */"]
        if self._isolation != READ_COMMITTED:
            begin.append(f"set transaction isolation level {self._isolation}")
        return Session(self._statements, begin=[*begin, BEGIN])

    def _session(self) -> Session:
        """Return how a verb joins. The names differ, so that one that was never set is not found as an earlier one."""
        self._joined += 1
        beside = None if self._isolation == READ_COMMITTED else self._place.beside
        return Session(self._statements, begin=[f"savepoint {self._savepoint}"], beside=beside)

    @property
    def _savepoint(self) -> str:
        return f"holdfast_verb_{self._joined}"

    def _not_undone(self, error: BaseException, reason: Exception) -> None:
        """Refuse what follows a verb that could not be undone; without its savepoint it has written nothing."""
        if not lacks_savepoint(reason) and self.connection.failure is None:
            self.connection.failure = error if isinstance(error, Exception) else reason

    def check_whole(self) -> None:  # noqa: D102
        self.check_open()
        self.connection.check()

    def explain(self, error: Exception, *, committing: bool = False) -> None:  # noqa: D102
        if isinstance(error, TransactionExpired):
            return
        closed = ends_session(error) or self.is_closed
        if closed and self.is_past_limit:
            self.move(TransactionState.OPEN, TransactionState.EXPIRED)
        if self.state is TransactionState.EXPIRED:
            raise self.over() from error
        if is_conflict(error) or is_read_only(error):
            self.connection.failure = error
        failure = self.connection.failure
        if failure is not None and not closed and not isinstance(error, Ending):
            if not isinstance(failure, _ERRORS):
                raise failure
            raise translate(failure, self._place.url, broken=False) from error
        if isinstance(error, _ERRORS) and (committing or closed) and not is_refused(error):
            raise translate(error, self._place.url, broken=closed, committing=committing) from error

    def close(self) -> None:  # noqa: D102
        self.connection.is_lent = False
        if is_read_only(self.connection.failure):
            drop(self.connection)  # it leads to a server that has become a replica
        super().close()


class MysqlAsyncTransaction(MysqlTransaction):
    """A transaction of an async handler."""

    connection: MysqlHandlersConnection
    _is_committed = False

    async def begin(self) -> None:  # noqa: D102 - see `OpenTransaction`
        self._turn = asyncio.Lock()
        self.state = TransactionState.OPEN
        self.timer = asyncio.get_running_loop().call_later(self.limit.total_seconds(), self._expire)
        with self.explained():
            await drive(self.connection, self._first(), self.lock_steps(), self.ready)
            self.connection.lend()

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb, after those that the handler has begun before: a savepoint undoes all that came after it."""
        async with self._turn:
            return await self._run(steps)

    async def _run(self, steps: Steps[T]) -> T:
        self.check_whole()
        session = self._session()
        with self.explained():
            try:
                return await drive(self.connection, session, steps, self.ready)
            except BaseException as error:
                await uncancellable(self._undo_verb(error))
                raise

    end_with = run

    async def _undo_verb(self, error: BaseException) -> None:
        if self.is_closed:
            return
        try:
            await self._ask(f"rollback to savepoint {self._savepoint}")
        except Exception as reason:  # noqa: BLE001 - whatever it is, the verb is not undone
            self._not_undone(error, reason)

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion; if no job follows this one and no verb has joined, commit in the same trip."""
        if self._joined:
            return await self.run(self._verbs.complete(lease, result))
        with self.explained():
            await self.connection.settle()
            if is_being_closed(self.connection):  # so that this is no unknown outcome of a commit
                drop(self.connection)
                raise ConnectionError("the server has ended the session")
            self.seal()
        self.connection.is_lent = False
        session = Session(self._statements, is_alone=True, reply_timeout=self._reply_timeout)
        try:
            with self.explained(committing=True):
                await uncancellable(drive(self.connection, session, complete_held(lease, result), self.ready))
        except DriverError as error:
            if not is_refused(error):
                raise
        else:
            self._is_committed = True
            return Verdict.DONE
        self.connection.lend()
        self.move(TransactionState.SEALED, TransactionState.OPEN)
        if self.is_past_limit:
            self._expire()  # the timer has passed meanwhile
        return await self.run(self._verbs.complete(lease, result))

    async def commit_transaction(self) -> None:  # noqa: D102
        if self._is_committed:
            return
        with self.explained():
            await self.connection.settle()
            self.seal()
        self.connection.is_lent = False
        with self.explained(committing=True):
            await uncancellable(self._ask("commit"))

    async def undo(self, error: BaseException) -> None:  # noqa: ARG002, D102
        self.cancel_timer()
        self.connection.is_lent = False
        await uncancellable(self._undo())

    async def _undo(self) -> None:
        if self.is_closed or not _may_be_open(self.connection):
            return
        try:
            await self._ask("rollback")
        except _ERRORS:
            drop(self.connection)  # the server rolls back by itself

    async def _ask(self, command: str) -> None:
        async with asyncio.timeout(self._reply_timeout):
            await self.connection.ask([command])

    def _expire(self) -> None:
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            drop(self.connection)


class MysqlBlockingTransaction(MysqlTransaction):
    """A transaction of a handler in a thread."""

    connection: MysqlHandlersBlockingConnection

    def begin(self) -> None:  # noqa: D102 - see `OpenTransaction`
        self.state = TransactionState.OPEN
        self.timer = set_deadline(self.limit.total_seconds(), self._expire)
        self.connection.set_read_timeout(self.limit.total_seconds() + self._reply_timeout)  # the timer is first
        with self.explained():
            drive_blocking(self.connection, self._first(), self.lock_steps(), self.ready)
            self.connection.lend()

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb that joins the transaction, while the handler's thread waits for it."""
        return await where_it_may_wait(lambda: self.end_with(steps))

    def end_with(self, steps: Steps[T]) -> T:  # noqa: D102
        self.check_whole()
        session = self._session()
        with self.explained():
            try:
                return drive_blocking(self.connection, session, steps, self.ready)
            except BaseException as error:
                self._undo_verb(error)
                raise

    def _undo_verb(self, error: BaseException) -> None:
        if self.is_closed:
            return
        try:
            self.connection.ask([f"rollback to savepoint {self._savepoint}"])
        except Exception as reason:  # noqa: BLE001 - whatever it is, the verb is not undone
            self._not_undone(error, reason)

    def commit_transaction(self) -> None:  # noqa: D102
        with self.explained():
            self.connection.settle()
            self.seal()
        self.cancel_timer()
        self.connection.is_lent = False
        self.connection.set_read_timeout(self._reply_timeout)
        with self.explained(committing=True):
            self.connection.ask(["commit"])

    def undo(self, error: BaseException) -> None:  # noqa: ARG002, D102
        self.cancel_timer()
        self.connection.is_lent = False
        if self.is_closed or not _may_be_open(self.connection):
            return
        self.connection.set_read_timeout(self._reply_timeout)
        try:
            self.connection.ask(["rollback"])
        except _ERRORS:
            drop(self.connection)  # the server rolls back by itself

    def _expire(self) -> None:
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            hang_up(self.connection)


def _may_be_open(connection: Any) -> bool:
    """Return whether a transaction may be open; after an error the server's last word about it may be out of date."""
    return is_in_transaction(connection) or connection.failure is not None
