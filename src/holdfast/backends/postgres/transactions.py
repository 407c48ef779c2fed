"""Effect and completion in one transaction of the database.

```text
   begin ─▶ lock the running row by its fence ─▶ the handler's statements ─▶ fenced completion ─▶ commit
                    │ not there                        │ raises, or too long       │ stale        │ reply lost
                    ▼                                  ▼                           ▼              ▼
                LeaseLost                          rollback                  rollback, LeaseLost  OutcomeUnknown: verify
```

While the row is locked, extension and rescue pass it over, so the lease is safe until the end. Past the limit the
transaction is rolled back: whoever waits for its locks, and the database's housekeeping, must not wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast.backends.postgres.connecting import drop
from holdfast.backends.postgres.location import Location
from holdfast.backends.postgres.open_transaction import AsyncTransaction, BlockingTransaction
from holdfast.backends.postgres.patience import bounded, bounded_blocking
from holdfast.backends.postgres.pool import AsyncPools, BlockingPool
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.steps import Steps
from holdfast.model.job import Lease

T = TypeVar("T")


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
        pools: AsyncPools,
        blocking: BlockingPool,
        statements: Statements,
        location: Location,
        *,
        suspect: Callable[[], None],
    ) -> None:
        """`suspect` is called when a connection broke: those that lie idle lead the same way."""
        self._pools = pools
        self._blocking = blocking
        self._statements = statements
        self._where = location.url
        self._patience = location.patience
        self._suspect = suspect

    @asynccontextmanager
    async def begin(self, lease: Lease, *, limit: timedelta) -> AsyncGenerator[AsyncTransaction]:
        """Open a transaction for an async handler."""
        async with self._pools.here.connection() as connection:
            transaction = AsyncTransaction(connection, self._statements, lease, limit, self._where)
            block = connection.transaction()
            with transaction.explained(), bounded(connection, self._patience):
                await block.__aenter__()
            expiring = asyncio.get_running_loop().call_later(limit.total_seconds(), transaction.expire_soon)
            try:
                try:
                    with transaction.explained(), _joinable(transaction):
                        await transaction.lock()
                        yield transaction
                        transaction.seal()
                except BaseException as error:
                    expiring.cancel()
                    with bounded(connection, self._patience):
                        await _to_the_end(_undo(transaction, block, error))
                    raise
                expiring.cancel()
                with transaction.explained(committing=True), bounded(connection, self._patience):
                    await _to_the_end(block.__aexit__(None, None, None))
            finally:
                transaction.end()
                if connection.closed:
                    self._suspect()
        transaction.committed()

    @contextmanager
    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> Generator[BlockingTransaction]:
        """Open a transaction for a handler in a thread."""
        with self._blocking.connection() as connection:
            transaction = BlockingTransaction(connection, self._statements, lease, limit, self._where)
            block = connection.transaction()
            with transaction.explained(), bounded_blocking(connection, self._patience):
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
                    with bounded_blocking(connection, self._patience):
                        _undo_blocking(transaction, block, error)
                    raise
                expiring.cancel()
                with transaction.explained(committing=True), bounded_blocking(connection, self._patience):
                    block.__exit__(None, None, None)
            finally:
                transaction.end()
                if connection.closed:
                    self._suspect()
        transaction.committed()


async def _undo(transaction: AsyncTransaction, block: Any, error: BaseException) -> None:
    """Roll back; a session that cannot is dropped, and the server rolls back by itself."""
    await transaction.settle_expiry()
    if not transaction.connection.closed:
        try:
            await block.__aexit__(type(error), error, error.__traceback__)
        except psycopg.Error:
            drop(transaction.connection)


def _undo_blocking(transaction: BlockingTransaction, block: Any, error: BaseException) -> None:
    """The same, in a thread."""
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


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that must not be left half-way; a cancellation is passed on once it is over."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


__all__ = ["Joinable", "PostgresTransactions", "current"]
