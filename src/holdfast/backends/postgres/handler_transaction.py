"""A handler's transaction on PostgreSQL.

While the lease's row is locked, extension and rescue skip it, so the lease is safe until the transaction ends. Past its
limit the transaction is rolled back: sessions that wait for its locks, and vacuum, must not wait forever. A frozen
client cannot roll back: then a rescue ends its session (`blockers.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.connecting import drop
from holdfast.backends.postgres.error_map import took_too_long, translate, was_ended
from holdfast.backends.postgres.execute import drive, drive_blocking
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded, bounded_blocking, hang_up
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.backends.postgres.verbs.stream_transaction import commit_or_fail, is_stale
from holdfast.backends.sql.steps import Ask
from holdfast.concurrency.statement_threads import where_it_may_wait
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, TransactionExpired
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.fences import FencedVerbs
from holdfast.store.handler_transaction import (
    AsyncTransaction,
    BlockingTransaction,
    FenceCheck,
    OpenTransaction,
    TransactionState,
)
from holdfast.store.steps import Place, Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict

T = TypeVar("T")
_CANCEL_TIMEOUT = 5.0


class PostgresPlace(NamedTuple):
    """What all transactions of a store share. `suspect` is called when a connection breaks: idle ones may have, too."""

    statements: Statements
    verbs: FencedVerbs
    url: str
    reply_timeout: float
    suspect: Callable[[], None]
    became_ready: Callable[[Sequence[Place]], None]


class _Session:
    """The checks that both kinds of transaction make on their connection."""

    def __init__(
        self, state: OpenTransaction, connection: AsyncConnection[Any] | Connection[Any], place: PostgresPlace
    ) -> None:
        self._state = state
        self._connection = connection
        self._place = place
        self._began = time.monotonic()

    @property
    def status(self) -> TransactionStatus:
        """The server's view of the transaction."""
        return TransactionStatus(self._connection.pgconn.transaction_status)

    def check_whole(self) -> None:
        """Raise `ConfigError` if a statement of the handler has ended the transaction or made it fail."""
        name = self._state.fence.name
        if self.status == TransactionStatus.IDLE:
            message = (
                f"{name}: its handler has committed or rolled back the transaction itself, so effect and completion "
                "cannot commit together: leave that to the `with` block"
            )
            raise ConfigError(message)
        if self.status == TransactionStatus.INERROR:
            message = (
                f"{name}: a statement of its handler failed, so PostgreSQL rolls back the whole transaction, even "
                "though the handler caught the error. Run statements that may fail in a savepoint: "
                "`with connection.transaction():`, or `async with` in an async handler"
            )
            raise ConfigError(message)

    def seal(self) -> None:
        """Stop the transaction from expiring, and check that it can commit."""
        self._state.seal()
        self.check_whole()

    @contextmanager
    def explained(
        self, *, committing: bool = False, but: Callable[[psycopg.Error], bool] = lambda _: False
    ) -> Generator[None]:
        """Translate errors of the driver to what happened to the transaction.

        Errors of the handler's own statements pass unchanged while the connection is open, and so do those that `but`
        accepts.
        """
        try:
            yield
        except TransactionExpired:
            raise
        except Exception as error:
            if took_too_long(error) or (was_ended(error) and self._is_past_limit()):
                self._state.state = TransactionState.EXPIRED
            if self._state.state is TransactionState.EXPIRED:
                raise self._state.over() from error
            closed = self._connection.closed
            if isinstance(error, psycopg.Error) and (committing or closed) and not but(error):
                raise translate(error, self._place.url, broken=closed, committing=committing) from error
            raise

    def _is_past_limit(self) -> bool:
        return time.monotonic() - self._began >= self._state.limit.total_seconds()

    def end(self) -> None:
        """Accept no further calls; report idle connections as suspect if this one broke by itself."""
        broke = self._connection.closed and self._state.state is not TransactionState.EXPIRED
        self._state.state = TransactionState.ENDED
        if broke:
            self._place.suspect()


class PostgresAsyncTransaction(AsyncTransaction):
    """A transaction of an async handler."""

    def __init__(
        self, connection: HandlersConnection, place: PostgresPlace, fence: FenceCheck, limit: timedelta
    ) -> None:
        super().__init__(fence, limit, owner=place.statements, became_ready=place.became_ready)
        self.connection = connection
        self.session = _Session(self, connection, place)
        self._place = place
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._is_committed = False

    def explained(self) -> AbstractContextManager[None]:  # noqa: D102 - see `OpenTransaction`
        return self.session.explained()

    async def begin(self) -> None:  # noqa: D102 - see `AsyncTransaction`
        self.state = TransactionState.OPEN
        self._timer = asyncio.get_running_loop().call_later(self.limit.total_seconds(), self._expire_soon)
        steps = self.lock_steps()
        text, parameters = self._statement(next(steps))
        with self.session.explained():
            with bounded(self.connection, self._place.reply_timeout):
                found = await self.connection.begin_with(text, parameters)
            with suppress(StopIteration):
                steps.send(found)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in the transaction."""
        self.check_open()
        with self.session.explained():
            return await drive(self.connection, self._place.statements, steps, self.ready)

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        self.session.check_whole()
        return await self.run(self._place.verbs.complete(lease, result))

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position; where that is one statement, commit in the same round trip."""
        if commit.parks or commit.unparks:
            self.session.check_whole()
            return await self.run(self._place.verbs.commit(grant, commit))
        self.session.seal()
        text, parameters = self._statement(commit_or_fail(grant, commit))
        try:
            with (
                self.session.explained(committing=True, but=is_stale),
                bounded(self.connection, self._place.reply_timeout),
            ):
                await uncancellable(self.connection.commit_with(text, parameters))
        except psycopg.Error:  # the statement failed, so the server did not commit
            return CommitVerdict.LOST
        self._is_committed = True
        return CommitVerdict.DONE

    async def commit_transaction(self) -> None:  # noqa: D102
        if self._is_committed:
            return
        self.session.seal()
        with self.session.explained(committing=True), bounded(self.connection, self._place.reply_timeout):
            await uncancellable(self.connection.end(b"commit"))

    async def undo(self) -> None:  # noqa: D102
        self._stop_timer()
        await uncancellable(self._undo())

    async def _undo(self) -> None:
        if self._expiring is not None:  # wait for a rollback that has begun
            await asyncio.wait({self._expiring})
        if self.connection.closed or self.session.status == TransactionStatus.IDLE:
            return
        try:
            with bounded(self.connection, self._place.reply_timeout):
                await self.connection.end(b"rollback")
        except psycopg.Error:
            drop(self.connection)  # the server rolls back by itself

    def close(self) -> None:  # noqa: D102
        self._stop_timer()
        self.session.end()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _statement(self, asked: Any) -> tuple[bytes, Mapping[str, object]]:
        assert isinstance(asked, Ask)  # noqa: S101 - verbs that begin or end a transaction are one statement
        statements = self._place.statements
        return statements.text(asked.statement), statements.parameters(asked.parameters)

    def _expire_soon(self) -> None:
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            self._expiring = asyncio.ensure_future(self._expire())

    async def _expire(self) -> None:
        if self.session.status == TransactionStatus.ACTIVE:
            try:
                await self.connection.cancel_safe(timeout=_CANCEL_TIMEOUT)
            except psycopg.Error:
                hang_up(self.connection)
        async with self.connection.lock:
            drop(self.connection)


class PostgresBlockingTransaction(BlockingTransaction):
    """A transaction of a handler in a thread."""

    def __init__(self, connection: Connection[Any], place: PostgresPlace, fence: FenceCheck, limit: timedelta) -> None:
        super().__init__(fence, limit, owner=place.statements, became_ready=place.became_ready)
        self.connection = connection
        self.session = _Session(self, connection, place)
        self._place = place
        self._block = connection.transaction()
        self._has_begun = False
        self._timer = threading.Timer(limit.total_seconds(), self._expire)
        self._timer.daemon = True

    def explained(self) -> AbstractContextManager[None]:  # noqa: D102 - see `OpenTransaction`
        return self.session.explained()

    def begin(self) -> None:  # noqa: D102 - see `BlockingTransaction`
        self.state = TransactionState.OPEN
        with self.session.explained():
            with bounded_blocking(self.connection, self._place.reply_timeout):
                self._block.__enter__()
            self._has_begun = True
            self._timer.start()
            drive_blocking(self.connection, self._place.statements, self.lock_steps(), self.ready)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in the transaction, while the handler's thread waits for it."""
        self.check_open()
        return await where_it_may_wait(lambda: self._run(steps))

    def _run(self, steps: Steps[T]) -> T:
        with self.session.explained():
            return drive_blocking(self.connection, self._place.statements, steps, self.ready)

    def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        self.session.check_whole()
        return self._run(self._place.verbs.complete(lease, result))

    def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        self.session.check_whole()
        return self._run(self._place.verbs.commit(grant, commit))

    def commit_transaction(self) -> None:  # noqa: D102
        with self.session.explained():
            self.session.seal()
        self._timer.cancel()
        with (
            self.session.explained(committing=True),
            bounded_blocking(self.connection, self._place.reply_timeout),
        ):
            self._block.__exit__(None, None, None)

    def undo(self, error: BaseException) -> None:  # noqa: D102
        self._stop_timer()
        if not self._has_begun or self.connection.closed:
            return
        try:
            with bounded_blocking(self.connection, self._place.reply_timeout):
                self._block.__exit__(type(error), error, error.__traceback__)
        except psycopg.Error:
            drop(self.connection)  # the server rolls back by itself

    def close(self) -> None:  # noqa: D102
        self._stop_timer()
        self.session.end()

    def _stop_timer(self) -> None:
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()  # wait for a rollback at the limit that has begun

    def _expire(self) -> None:
        if not self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            return
        if self.session.status == TransactionStatus.ACTIVE:
            try:
                self.connection.cancel_safe(timeout=_CANCEL_TIMEOUT)
            except psycopg.Error:
                hang_up(self.connection)
        with self.connection.lock:
            drop(self.connection)
