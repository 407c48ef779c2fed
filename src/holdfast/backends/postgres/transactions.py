"""Effect and completion in one transaction of the database.

```text
   begin ─▶ lock the running row by its fence ─▶ the handler's statements ─▶ fenced completion ─▶ commit
                    │ not there                        │ raises, or too long       │ stale        │ reply lost
                    ▼                                  ▼                           ▼              ▼
                LeaseLost                          rollback                  rollback, LeaseLost  OutcomeUnknown: verify
```

While the row is locked, extension and rescue skip it, so the lease is safe until the end. Past the limit the
transaction is rolled back: sessions that wait for its locks, and the database's housekeeping, must not wait for ever. A
client that is frozen cannot do that: then a rescue ends its session, see `blockers.py`.

For a consumer's handler the row is its share's, the fence its generation, the completion the position; a seizure is
repeated until the transaction has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast.backends.postgres.connecting import drop
from holdfast.backends.postgres.fence_check import PostgresFenceCheck, holding_job, holding_share
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.open_transaction import (
    AsyncOpenTransaction,
    AsyncStreamTransaction,
    AsyncTransaction,
    BlockingOpenTransaction,
    BlockingStreamTransaction,
    BlockingTransaction,
)
from holdfast.backends.postgres.pool import PostgresBlockingPool, PostgresPools
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded_blocking
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.backends.sql.steps import Place
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps

T = TypeVar("T")
Async = TypeVar("Async", bound=AsyncOpenTransaction)
Blocking = TypeVar("Blocking", bound=BlockingOpenTransaction)


class Joinable(Protocol):
    """A transaction that verbs join."""

    owner: Statements
    after_commit: list[Callable[[], None]]

    @property
    def is_entered(self) -> bool:
        """Whether its handler is inside the block."""
        ...

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in it."""
        ...


current: ContextVar[Joinable | None] = ContextVar("holdfast_postgres_transaction", default=None)


class PostgresTransactions:
    """Opens handlers' transactions, on connections apart from those of the verbs."""

    def __init__(
        self,
        pools: PostgresPools,
        blocking: PostgresBlockingPool,
        statements: Statements,
        location: PostgresLocation,
        *,
        suspect: Callable[[], None],
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        """`suspect` is called when a connection broke by itself: those that lie idle lead the same way.

        `became_ready` is called after a commit that made jobs ready, with their places.
        """
        self._pools = pools
        self._blocking = blocking
        self._statements = statements
        self._where = location.url
        self._reply_timeout = location.reply_timeout
        self._suspect = suspect
        self._became_ready = became_ready

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Open a transaction for an async handler of a task."""
        return self._open(AsyncTransaction, holding_job(lease), limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[BlockingTransaction]:
        """Open a transaction for a handler of a task in a thread."""
        return self._open_blocking(BlockingTransaction, holding_job(lease), limit)

    def begin_stream(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[AsyncStreamTransaction]:
        """Open a transaction for an async handler of a consumer."""
        return self._open(AsyncStreamTransaction, holding_share(grant), limit)

    def begin_stream_blocking(
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[BlockingStreamTransaction]:
        """Open a transaction for a handler of a consumer in a thread."""
        return self._open_blocking(BlockingStreamTransaction, holding_share(grant), limit)

    @asynccontextmanager
    async def _open(self, kind: type[Async], holding: PostgresFenceCheck, limit: timedelta) -> AsyncGenerator[Async]:
        async with self._pools.here.connection() as connection:
            assert isinstance(connection, HandlersConnection)  # noqa: S101 - see `connecting.py`
            transaction = kind(
                connection, self._statements, holding, limit, self._where, self._became_ready, self._reply_timeout
            )
            expiring = asyncio.get_running_loop().call_later(limit.total_seconds(), transaction.expire_soon)
            try:
                with transaction.explained(), _joinable(transaction):
                    await transaction.begin()
                    yield transaction
                await transaction.commit_transaction()
            except BaseException:
                expiring.cancel()
                await transaction.undo()
                raise
            finally:
                expiring.cancel()
                if transaction.end():
                    self._suspect()
        transaction.committed()

    @contextmanager
    def _open_blocking(
        self, kind: type[Blocking], holding: PostgresFenceCheck, limit: timedelta
    ) -> Generator[Blocking]:
        with self._blocking.connection() as connection:
            transaction = kind(connection, self._statements, holding, limit, self._where, self._became_ready)
            block = connection.transaction()
            with transaction.explained(), bounded_blocking(connection, self._reply_timeout):
                block.__enter__()
            expiring = threading.Timer(limit.total_seconds(), transaction.expire)
            expiring.daemon = True
            expiring.start()
            try:
                try:
                    with transaction.explained(), _joinable(transaction):
                        transaction.lock()
                        yield transaction
                        transaction.seal()
                except BaseException as error:
                    expiring.cancel()
                    expiring.join()  # a rollback for the limit's sake that has begun is let end
                    with bounded_blocking(connection, self._reply_timeout):
                        _undo_blocking(transaction, block, error)
                    raise
                expiring.cancel()
                with transaction.explained(committing=True), bounded_blocking(connection, self._reply_timeout):
                    block.__exit__(None, None, None)
            finally:
                if transaction.end():
                    self._suspect()
        transaction.committed()


def _undo_blocking(transaction: BlockingOpenTransaction, block: Any, error: BaseException) -> None:
    """Roll back; a session that cannot is dropped, and the server rolls back by itself."""
    if not transaction.connection.closed:
        try:
            block.__exit__(type(error), error, error.__traceback__)
        except psycopg.Error:
            drop(transaction.connection)


@contextmanager
def _joinable(transaction: Joinable) -> Generator[None]:
    token = current.set(transaction)
    try:
        yield
    finally:
        current.reset(token)


__all__ = ["Joinable", "PostgresTransactions", "current"]
