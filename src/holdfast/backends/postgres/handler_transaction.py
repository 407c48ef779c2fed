"""A handler's transaction on PostgreSQL.

While the lease's row is locked, extension and rescue skip it, so the lease is safe until the transaction ends. Past its
limit the transaction is rolled back: sessions that wait for its locks, and vacuum, must not wait forever. A frozen
client cannot roll back: then a rescue ends its session (`blockers.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.connecting import drop, is_idle
from holdfast.backends.postgres.error_map import is_conflict, took_too_long, translate, was_ended
from holdfast.backends.postgres.execute import drive, drive_blocking
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded, bounded_blocking, hang_up
from holdfast.backends.postgres.transaction_connection import HandlersBlockingConnection, HandlersConnection
from holdfast.backends.postgres.verbs.fenced_end import commit_or_fail, complete_all_or_fail, complete_or_fail, is_stale
from holdfast.backends.sql.server_transaction import ServerTransaction, TransactionPlace
from holdfast.backends.sql.steps import Ask, rows
from holdfast.concurrency.loop_timeouts import set_timeout
from holdfast.concurrency.statement_threads import where_it_may_wait
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.concurrency.timeouts import set_deadline
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, HoldfastError, TransactionExpired
from holdfast.model.allocation import Grant
from holdfast.model.isolation import Isolation
from holdfast.model.job import Lease
from holdfast.model.outcome import Completed, Ending
from holdfast.store.handler_transaction import FenceCheck, TransactionState
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Finish, Verdict

T = TypeVar("T")
_CANCEL_TIMEOUT = 5.0
_LEVELS: dict[Isolation, IsolationLevel] = {
    "read committed": IsolationLevel.READ_COMMITTED,
    "repeatable read": IsolationLevel.REPEATABLE_READ,
    "serializable": IsolationLevel.SERIALIZABLE,
}


class PostgresTransaction(ServerTransaction[Statements]):
    """The part that both kinds of transaction share."""

    @property
    def is_closed(self) -> bool:  # noqa: D102
        return bool(self.connection.closed)

    @property
    def _status(self) -> TransactionStatus:
        """The server's view of the transaction."""
        return TransactionStatus(self.connection.pgconn.transaction_status)

    def check_whole(self) -> None:  # noqa: D102
        self.check_open()
        status = self._status
        if status == TransactionStatus.IDLE:
            message = (
                f"{self.fence.name}: its handler has committed or rolled back the transaction itself, so what follows "
                "would commit separately: leave that to the `with` block"
            )
            raise ConfigError(message)
        if status == TransactionStatus.INERROR:
            raise self.has_failed()

    def finish(self, finishes: Sequence[Finish]) -> Any:  # noqa: D102
        return self.end_with(self._finish(finishes))

    def _finish(self, finishes: Sequence[Finish]) -> Steps[list[Verdict]]:
        yield from rows("plan_by_index")
        return (yield from self._verbs.finish(finishes))

    def has_failed(self) -> HoldfastError:
        """Return the error for a transaction in which a statement has failed."""
        conflict = self._conflict()
        if conflict is not None:
            return translate(conflict, self._place.url, broken=False)
        return ConfigError(
            f"{self.fence.name}: a statement inside its transaction failed, so PostgreSQL rolls back the whole "
            "transaction, even though the error was caught. Run statements that may fail in a savepoint: "
            "`with connection.transaction():`, or `async with` in async code"
        )

    def _conflict(self, error: Exception | None = None) -> psycopg.Error | None:
        """Return the conflict that `error` is, or that has made the transaction fail before."""
        if isinstance(error, psycopg.Error) and is_conflict(error):
            return error
        failure: psycopg.Error | None = self.connection.failure
        return failure if is_conflict(failure) and self._status == TransactionStatus.INERROR else None

    def explain(self, error: Exception, *, committing: bool = False) -> None:  # noqa: D102
        if isinstance(error, TransactionExpired):
            return
        if took_too_long(error) or (was_ended(error) and self.is_past_limit):
            self.state = TransactionState.EXPIRED
        if self.state is TransactionState.EXPIRED:
            raise self.over() from error
        closed = self.connection.closed
        conflict = None if closed or isinstance(error, Ending) else self._conflict(error)
        if conflict is not None:
            raise translate(conflict, self._place.url, broken=False) from error
        if isinstance(error, psycopg.Error) and (committing or closed):
            raise translate(error, self._place.url, broken=closed, committing=committing) from error


class PostgresAsyncTransaction(PostgresTransaction):
    """A transaction of an async handler."""

    connection: HandlersConnection
    _expiring: asyncio.Task[None] | None = None
    _is_committed = False
    _is_followed = True
    _locked: Mapping[str, object]
    _sealed_at: float | None = None

    async def begin(self) -> None:  # noqa: D102 - see `OpenTransaction`
        self.state = TransactionState.OPEN
        self.timer = set_timeout(self.limit.total_seconds(), self._at_limit)
        steps = self.lock_steps()
        text, parameters = self._statement(next(steps))
        self._locked = parameters
        try:
            with bounded(self.connection, self._reply_timeout):
                found = await self.connection.begin_with(text, parameters, self._isolation)
            self._is_followed = True in [row[-1] for row in found]
            with suppress(StopIteration):
                steps.send(found)
        except Exception as error:
            self.explain(error)
            raise

    async def run(self, steps: Steps[T]) -> T:  # noqa: D102
        self.check_whole()
        with self.explained():
            return await drive(self.connection, self._statements, steps, self.ready)

    end_with = run

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion; if no job follows this one, commit in the same round trip."""
        if self._may_be_followed:
            return await self.run(self._verbs.complete(lease, result))
        return Verdict.DONE if await self._commit_with(complete_or_fail(lease, result)) else Verdict.LOST

    async def finish(self, finishes: Sequence[Finish]) -> list[Verdict]:
        """Write the fenced outcomes; if all are completions of held jobs that none follows, commit at the same time."""
        leases = [finish.lease for finish in finishes]
        results = [finish.outcome.result for finish in finishes if type(finish.outcome) is Completed]
        are_all = leases == self.fence.leases  # compared by identity first
        held = len(self.held) if are_all else len(self.held.intersection([(one.seq, one.fence) for one in leases]))
        if self._may_be_followed or not 0 < len(results) == len(finishes) == held:
            return await self.run(self._finish(finishes))
        asked = complete_all_or_fail(leases, results, self._locked if are_all else None)
        is_done = await self._commit_with(asked, self._statements.text("plan_by_index"))
        return [Verdict.DONE if is_done else Verdict.LOST] * len(finishes)

    @property
    def _may_be_followed(self) -> bool:
        """Whether the end of a job may concern others: known from the locked rows, unless a verb has run since."""
        return self._is_followed or self.connection.has_joined

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position; where that is one statement, commit in the same round trip."""
        if commit.parks or commit.unparks:
            return await self.run(self._verbs.commit(grant, commit))
        return CommitVerdict.DONE if await self._commit_with(commit_or_fail(grant, commit)) else CommitVerdict.LOST

    async def _commit_with(self, asked: Ask, *before: bytes) -> bool:
        """Run the last statement, and commit in the same round trip; return False if it failed because it is stale."""
        self.seal()
        self._sealed_at = time.monotonic()
        text, parameters = self._statement(asked)
        try:
            with bounded(self.connection, self._reply_timeout):
                await self.connection.commit_with(text, parameters, *before)
        except Exception as error:
            if isinstance(error, psycopg.Error) and is_stale(error):  # so the server did not commit
                return False
            self.explain(error, committing=True)
            raise
        self._is_committed = True
        return True

    async def commit_transaction(self) -> None:  # noqa: D102
        if self._is_committed:
            return
        self.seal()
        with self.explained(committing=True), bounded(self.connection, self._reply_timeout):
            await uncancellable(self.connection.end(b"commit"))

    async def undo(self, error: BaseException) -> None:  # noqa: ARG002, D102
        self.cancel_timer()
        await uncancellable(self._undo())

    async def _undo(self) -> None:
        if self._expiring is not None:  # wait for a rollback that has begun
            await asyncio.wait({self._expiring})
        if self.connection.closed or is_idle(self.connection):
            return
        try:
            with bounded(self.connection, self._reply_timeout):
                await self.connection.end(b"rollback")
        except psycopg.Error:
            drop(self.connection)  # the server rolls back by itself

    def _statement(self, asked: Any) -> tuple[bytes, Mapping[str, object]]:
        assert isinstance(asked, Ask)  # noqa: S101 - verbs that begin or end a transaction are one statement
        return self._statements.text(asked.statement), self._statements.parameters(asked.parameters)

    def _at_limit(self) -> None:
        """Roll back; a commit that is under way has the time for a reply, counted from its beginning."""
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            self._expiring = asyncio.ensure_future(self._expire())
        elif self._sealed_at is not None:
            left = self._sealed_at + self._reply_timeout - time.monotonic()
            if left > 0:
                self.timer = set_timeout(left, self._at_limit)
            else:
                hang_up(self.connection)

    async def _expire(self) -> None:
        if self._status == TransactionStatus.ACTIVE:
            try:
                await self.connection.cancel_safe(timeout=_CANCEL_TIMEOUT)
            except psycopg.Error:
                hang_up(self.connection)
        async with self.connection.lock:
            drop(self.connection)


class PostgresBlockingTransaction(PostgresTransaction):
    """A transaction of a handler in a thread."""

    connection: HandlersBlockingConnection

    def __init__(
        self,
        connection: HandlersBlockingConnection,
        place: TransactionPlace[Statements],
        fence: FenceCheck,
        limit: timedelta,
        isolation: Isolation,
    ) -> None:
        super().__init__(connection, place, fence, limit, isolation)
        connection.isolation_level = _LEVELS[isolation]
        self._block = connection.transaction()
        self._has_begun = False
        self._expiring: threading.Thread | None = None

    def begin(self) -> None:  # noqa: D102 - see `OpenTransaction`
        self.state = TransactionState.OPEN
        with self.explained():
            with bounded_blocking(self.connection, self._reply_timeout):
                self._block.__enter__()
            self._has_begun = True
            self.timer = set_deadline(self.limit.total_seconds(), self._at_limit)
            drive_blocking(self.connection, self._statements, self.lock_steps(), self.ready)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb that joins the transaction, while the handler's thread waits for it."""
        return await where_it_may_wait(lambda: self.end_with(steps))

    def end_with(self, steps: Steps[T]) -> T:  # noqa: D102
        self.check_whole()
        with self.explained():
            return drive_blocking(self.connection, self._statements, steps, self.ready)

    def commit_transaction(self) -> None:  # noqa: D102
        with self.explained():
            self.seal()
        with self.explained(committing=True), bounded_blocking(self.connection, self._reply_timeout):
            self._block.__exit__(None, None, None)

    def undo(self, error: BaseException) -> None:  # noqa: D102
        self.cancel_timer()
        if self._expiring is not None:
            self._expiring.join()  # wait for a rollback at the limit that has begun
        if not self._has_begun or self.connection.closed:
            return
        try:
            with bounded_blocking(self.connection, self._reply_timeout):
                self._block.__exit__(type(error), error, error.__traceback__)
        except psycopg.Error:
            drop(self.connection)  # the server rolls back by itself

    def _at_limit(self) -> None:
        """Roll back, in a separate thread: that may wait for the server, and this one watches all time limits."""
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            expiring = threading.Thread(target=self._expire, name=store_thread_name("postgres-expiry"), daemon=True)
            try:
                expiring.start()
            except RuntimeError:  # no thread available: the waiting statement fails, and the server rolls back
                hang_up(self.connection)
            else:
                self._expiring = expiring

    def _expire(self) -> None:
        if self._status == TransactionStatus.ACTIVE:
            try:
                self.connection.cancel_safe(timeout=_CANCEL_TIMEOUT)
            except psycopg.Error:
                hang_up(self.connection)
        with self.connection.lock:
            drop(self.connection)
