"""A transaction that a handler holds open, and the fenced completion in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.connecting import drop
from holdfast.backends.postgres.error_map import took_too_long, translate
from holdfast.backends.postgres.execute import drive, drive_blocking
from holdfast.backends.postgres.fence_check import PostgresFenceCheck
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.statement_threads import where_it_may_wait
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded, hang_up
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.backends.postgres.verbs.consumers import commit as commit_step
from holdfast.backends.postgres.verbs.consumers import commit_or_fail, is_stale
from holdfast.backends.sql.steps import Ask, Place, Ready
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, TransactionExpired
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

T = TypeVar("T")
_CANCEL_PATIENCE = 5.0


class _Session(Protocol):
    """What the two kinds of connection have in common."""

    @property
    def closed(self) -> bool: ...

    @property
    def pgconn(self) -> psycopg.pq.abc.PGconn: ...


class State(Enum):
    """Where a handler's transaction stands.

    ```text
       OPEN ──▶ SEALED ──▶ COMMITTED    with its last statement: else the COMMIT is still to be sent
         └────▶ EXPIRED                 rolled back because it lasted too long
    ```

    ENDED comes behind each of them. Whoever takes it out of OPEN, under the lock, decides which way it goes.
    """

    OPEN = "open"
    SEALED = "sealed"
    COMMITTED = "committed"
    EXPIRED = "expired"
    ENDED = "ended"


class OpenTransaction:
    """What both kinds of transaction share."""

    def __init__(
        self,
        session: _Session,
        owner: Statements,
        holding: PostgresFenceCheck,
        limit: timedelta,
        where: str,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        self._session = session
        self._holding = holding
        self._limit = limit
        self._where = where
        self._became_ready = became_ready
        self._ready = Ready()
        self._state = State.OPEN
        self._lock = threading.Lock()
        self.owner = owner
        self.after_commit: list[Callable[[], None]] = []

    @property
    def is_entered(self) -> bool:
        """Whether its handler is inside the block: its calls join it or, once it has expired, are refused."""
        return self._state in {State.OPEN, State.EXPIRED}

    def check_open(self) -> None:
        """Refuse a call inside a transaction that was rolled back: it would commit alone."""
        if self._state is State.EXPIRED:
            raise self._expired()

    def _may_expire(self) -> bool:
        with self._lock:
            if self._state is not State.OPEN:
                return False
            self._state = State.EXPIRED
            return True

    def seal(self) -> None:
        """Let it not expire any more: it is about to be committed."""
        with self._lock:
            if self._state is State.EXPIRED:
                raise self._expired()
            self._state = State.SEALED
        self._check_whole()

    def end(self) -> bool:
        """Let nothing join it any more; whether its connection broke by itself, not for the limit's sake."""
        broke = self._session.closed and self._state is not State.EXPIRED
        self._state = State.ENDED
        return broke

    def committed(self) -> None:
        """Do what waited for the commit."""
        if self._ready:
            self._became_ready(self._ready.places)
        for act in self.after_commit:
            act()

    @contextmanager
    def explained(
        self, *, committing: bool = False, but: Callable[[psycopg.Error], bool] = lambda _: False
    ) -> Generator[None]:
        """Raise what became of the transaction in place of what the driver says of it.

        Errors of the handler's own statements are the handler's own affair as long as the connection is whole. So are
        the caller's those that it has asked for.
        """
        try:
            yield
        except TransactionExpired:
            raise
        except Exception as error:
            if took_too_long(error):
                self._state = State.EXPIRED
            if self._state is State.EXPIRED:
                raise self._expired() from error
            if isinstance(error, psycopg.Error) and (committing or self._session.closed) and not but(error):
                raise translate(error, self._where, broken=self._session.closed, committing=committing) from error
            raise

    def _check_whole(self) -> None:
        """See that the handler has not ended the transaction by a statement of its own, nor broken it by one."""
        status = self._session.pgconn.transaction_status
        if status == TransactionStatus.IDLE:
            message = (
                f"{self._holding.name}: its handler has committed or rolled back the transaction by itself, so "
                "effect and completion cannot commit together: leave that to the `with` block"
            )
            raise ConfigError(message)
        if status == TransactionStatus.INERROR:
            message = (
                f"{self._holding.name}: a statement of its handler failed, and PostgreSQL undoes the whole "
                "transaction for that, though the handler has caught the error. Put what may fail into a savepoint: "
                "`with connection.transaction():`, or `async with` in an async handler"
            )
            raise ConfigError(message)

    def _lock_steps(self) -> Steps[None]:
        return self._holding.lock(max(1, int(self._limit.total_seconds() * 1000)))

    def _expired(self) -> TransactionExpired:
        return TransactionExpired(
            f"{self._holding.name}: its transaction was open longer than {self._limit.total_seconds():g} s and was "
            f"rolled back. Do slow work before the transaction and write only the effect inside it, or "
            f"{self._holding.remedy}"
        )


class AsyncOpenTransaction(OpenTransaction):
    """A transaction of an async handler."""

    def __init__(
        self,
        connection: HandlersConnection,
        owner: Statements,
        holding: PostgresFenceCheck,
        limit: timedelta,
        where: str,
        became_ready: Callable[[Sequence[Place]], None],
        patience: float,
    ) -> None:
        super().__init__(connection, owner, holding, limit, where, became_ready)
        self.connection = connection
        self._patience = patience
        self._expiring: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin, and lock what is held; raise `LeaseLost` if it is held no longer."""
        steps = self._lock_steps()
        text, parameters = self._statement(next(steps))
        with bounded(self.connection, self._patience):
            found = await self.connection.begin_with(text, parameters)
        with suppress(StopIteration):
            steps.send(found)

    async def commit_transaction(self) -> None:
        """Commit, unless that was done with the last statement."""
        if self._state is State.COMMITTED:
            return
        self.seal()
        with self.explained(committing=True), bounded(self.connection, self._patience):
            await uncancellable(self.connection.end(b"commit"))

    async def undo(self) -> None:
        """Roll back; a session that cannot is dropped, and the server rolls back by itself."""
        await uncancellable(self._undo())

    async def _undo(self) -> None:
        await self._settle_expiry()
        if self.connection.closed or self.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return
        try:
            with bounded(self.connection, self._patience):
                await self.connection.end(b"rollback")
        except psycopg.Error:
            drop(self.connection)

    def _statement(self, asked: Any) -> tuple[bytes, Mapping[str, object]]:
        assert isinstance(asked, Ask)  # noqa: S101 - verbs for the ends of a transaction are one statement
        return self.owner.text(asked.statement), self.owner.parameters(asked.parameters)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in it."""
        self.check_open()
        return await drive(self.connection, self.owner, steps, self._ready)

    def expire_soon(self) -> None:
        """Begin to roll back because the limit has passed."""
        if self._may_expire():
            self._expiring = asyncio.ensure_future(self._expire())

    async def _expire(self) -> None:
        if self.connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
            try:
                await self.connection.cancel_safe(timeout=_CANCEL_PATIENCE)
            except psycopg.Error:
                hang_up(self.connection)
        async with self.connection.lock:
            drop(self.connection)

    async def _settle_expiry(self) -> None:
        """Wait until a rollback that has begun is over."""
        if self._expiring is not None:
            await asyncio.wait({self._expiring})


class BlockingOpenTransaction(OpenTransaction):
    """A transaction of a handler in a thread."""

    def __init__(
        self,
        connection: Connection[Any],
        owner: Statements,
        holding: PostgresFenceCheck,
        limit: timedelta,
        where: str,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        super().__init__(connection, owner, holding, limit, where, became_ready)
        self.connection = connection

    def lock(self) -> None:
        """Lock what is held; raise `LeaseLost` if it is held no longer."""
        drive_blocking(self.connection, self.owner, self._lock_steps(), self._ready)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in it, while the handler's thread waits for that."""
        self.check_open()
        return await where_it_may_wait(lambda: drive_blocking(self.connection, self.owner, steps, self._ready))

    def expire(self) -> None:
        """Roll back because the limit has passed; called in a thread of its own."""
        if not self._may_expire():
            return
        if self.connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
            try:
                self.connection.cancel_safe(timeout=_CANCEL_PATIENCE)
            except psycopg.Error:
                hang_up(self.connection)
        with self.connection.lock:
            drop(self.connection)


class AsyncTransaction(AsyncOpenTransaction):
    """The port's transaction for async handlers of tasks."""

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        self._check_whole()
        return await self.run(complete(PostgresJobRows(), lease, result))


class BlockingTransaction(BlockingOpenTransaction):
    """The port's transaction for handlers of tasks in threads."""

    def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        self._check_whole()
        return drive_blocking(self.connection, self.owner, complete(PostgresJobRows(), lease, result), self._ready)


class AsyncStreamTransaction(AsyncOpenTransaction):
    """The port's transaction for async handlers of consumers."""

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position, and commit with it where it is one statement."""
        if commit.parks or commit.unparks:
            self._check_whole()
            return await self.run(commit_step(grant, commit))
        self.seal()
        text, parameters = self._statement(commit_or_fail(grant, commit))
        try:
            with self.explained(committing=True, but=is_stale), bounded(self.connection, self._patience):
                await uncancellable(self.connection.commit_with(text, parameters))
        except psycopg.Error:  # by which the server has refused to commit
            return CommitVerdict.LOST
        self._state = State.COMMITTED
        return CommitVerdict.DONE


class BlockingStreamTransaction(BlockingOpenTransaction):
    """The port's transaction for handlers of consumers in threads."""

    def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        self._check_whole()
        return drive_blocking(self.connection, self.owner, commit_step(grant, commit), self._ready)
