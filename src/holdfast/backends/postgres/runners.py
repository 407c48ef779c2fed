"""Runners of verbs: each verb in a separate transaction, or in the one that the calling handler holds open.

The server aborts one of two transactions that deadlock; that one is repeated here, a few times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.connecting import drop, is_idle
from holdfast.backends.postgres.error_map import is_read_only, is_worth_repeating, translate
from holdfast.backends.postgres.execute import drive
from holdfast.backends.postgres.handler_transaction import PostgresAsyncTransaction, PostgresBlockingTransaction
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.pool import PostgresPools
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded
from holdfast.errors import ConfigError, SchemaMismatch
from holdfast.store.handler_transaction import entered
from holdfast.store.steps import Place, Ready, Runner, Verb

T = TypeVar("T")
HandlersTransaction = PostgresAsyncTransaction | PostgresBlockingTransaction

_ATTEMPTS = 6
_PAUSE = 0.02
_BEGIN = b"begin isolation level read committed"
# A process that is stopped between two statements would keep its locks: a partition's head, the leadership. The server
# then ends its session; a verb takes milliseconds, and is safe to repeat.
_BEGIN_STEPS = _BEGIN + b"; set local idle_in_transaction_session_timeout = '5s'"
_COMMIT = b"commit"
# Overviews read whole tables: `connecting.py` explains why that is off elsewhere.
_SNAPSHOT = (
    b"begin isolation level repeatable read read only; set local enable_seqscan = on; set local enable_bitmapscan = on"
)


class SwiftRunner(Runner, Protocol):
    """A runner that can also run a verb in one round trip."""

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb whose statements go together: one transaction, in one round trip where possible."""
        ...


class PoolRunner:
    """Runs each verb on a connection of the pool, or inside the transaction that the calling handler holds open."""

    def __init__(
        self,
        pools: PostgresPools,
        statements: Statements,
        location: PostgresLocation,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        """`became_ready` is called after a commit that made jobs ready, with their places."""
        self._became_ready = became_ready
        self._pools = pools
        self._statements = statements
        self._where = location.url
        self._reply_timeout = location.reply_timeout

    async def once(self, verb: Verb[T]) -> T:
        """Run one statement; raise `OutcomeUnknown` if its reply is lost."""
        return await self._joined_or(verb, lambda: self._alone(verb, writes=True))

    async def look(self, verb: Verb[T]) -> T:
        """Run one statement that changes nothing."""
        return await self._joined_or(verb, lambda: self._alone(verb, writes=False))

    async def write(self, verb: Verb[T]) -> T:
        """Run one transaction."""
        return await self._joined_or(verb, lambda: self._transact(_BEGIN_STEPS, verb))

    async def at_once(self, verb: Verb[T]) -> T:
        """Run one transaction whose BEGIN and COMMIT go together with its statements."""
        return await self._joined_or(verb, lambda: self._framed(verb))

    async def read(self, verb: Verb[T]) -> T:
        """Run one read-only transaction with one snapshot."""
        return await self._joined_or(verb, lambda: self._transact(_SNAPSHOT, verb))

    async def apart(self, verb: Verb[T]) -> T:
        """Run one statement that commits independently of the handler's transaction."""
        return await self._repeat(lambda: self._alone(verb, writes=True))

    def losses(self) -> int:
        """Return the number of broken connections so far, after a check of the connection that is used next."""
        self._pools.here.weed()
        return self._pools.losses

    @property
    def joins(self) -> bool:
        """Whether the current call runs inside a handler's transaction."""
        return self._entered() is not None

    def _entered(self) -> HandlersTransaction | None:
        """Return the transaction of this store that the calling handler holds open."""
        transaction = entered(self._statements)
        return transaction if isinstance(transaction, HandlersTransaction) else None

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call `act` once the writes are visible: now, or when the handler's transaction has committed."""
        transaction = self._entered()
        if transaction is not None:
            transaction.after_commit.append(act)
        else:
            act()

    async def _joined_or(self, verb: Verb[T], alone: Callable[[], Awaitable[T]]) -> T:
        transaction = self._entered()
        return await (self._repeat(alone) if transaction is None else self._joined(transaction, verb))

    async def _joined(self, transaction: HandlersTransaction, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is open and has not failed; never outside of it, only once.

        Errors of our own statements are translated, except a unique violation, which the verb itself handles.
        """
        _check_whole(transaction)
        try:
            return await transaction.run(verb())
        except psycopg.errors.UniqueViolation:
            raise
        except psycopg.errors.InFailedSqlTransaction as error:
            raise _has_failed() from error
        except psycopg.Error as error:
            raise translate(error, self._where, broken=False) from error

    async def _repeat(self, work: Callable[[], Awaitable[T]]) -> T:
        for number in range(1, _ATTEMPTS + 1):
            try:
                return await work()
            except psycopg.Error as error:
                if not is_worth_repeating(error):
                    raise
                if number == _ATTEMPTS:
                    raise translate(error, self._where, broken=False) from error
            await asyncio.sleep(_PAUSE * number * random.random())  # noqa: S311 - jitter, not a secret
        raise AssertionError

    async def _alone(self, verb: Verb[T], *, writes: bool) -> T:
        pool = self._pools.here
        connection = await pool.take()
        ready = Ready()
        try:
            result = await drive(connection, self._statements, verb(), ready, reply_timeout=self._reply_timeout)
        except psycopg.Error as error:
            self._explain(connection, error, committing=writes)
            raise
        finally:
            pool.put(connection)
        if ready:
            self._became_ready(ready.places)
        return result

    async def _framed(self, verb: Verb[T]) -> T:
        ready = Ready()
        async with self._pools.here.connection() as connection:
            try:
                try:
                    result = await drive(
                        connection,
                        self._statements,
                        verb(),
                        ready,
                        reply_timeout=self._reply_timeout,
                        frame=(_BEGIN, _COMMIT),
                    )
                except BaseException:
                    with bounded(connection, self._reply_timeout):
                        await _roll_back(connection)
                    raise
            except psycopg.Error as error:
                self._explain(connection, error, committing=True)
                raise
        if ready:
            self._became_ready(ready.places)
        return result

    async def _transact(self, begin: bytes, verb: Verb[T]) -> T:
        committing = False
        ready = Ready()
        async with self._pools.here.connection() as connection:
            try:
                with bounded(connection, self._reply_timeout):
                    await connection.execute(begin)
                try:
                    result = await drive(connection, self._statements, verb(), ready, reply_timeout=self._reply_timeout)
                except BaseException:
                    with bounded(connection, self._reply_timeout):
                        await _roll_back(connection)
                    raise
                committing = begin is _BEGIN_STEPS
                with bounded(connection, self._reply_timeout):
                    await connection.execute(_COMMIT)
            except psycopg.Error as error:
                self._explain(connection, error, committing=committing)
                raise
        if ready:
            self._became_ready(ready.places)
        return result

    def _explain(self, connection: AsyncConnection[Any], error: psycopg.Error, *, committing: bool) -> None:
        """Raise the translated error, and drop connections that are no longer usable.

        Returns if the caller handles the driver's error: it repeats the verb, or uses another statement.
        """
        if isinstance(error, psycopg.errors.UniqueViolation) or is_worth_repeating(error):
            return
        broken = connection.closed
        if is_read_only(error):
            drop(connection)
        if connection.closed:  # idle connections lead to the same server, over the same network
            self._pools.drop_idle()
        translated = translate(error, self._where, broken=broken, committing=committing)
        if isinstance(translated, SchemaMismatch):
            self._pools.lose()  # a new installation has new lanes: cached ids are invalid
        raise translated from error


def _check_whole(transaction: HandlersTransaction) -> None:
    """Raise `ConfigError` if a statement of the handler has ended the transaction or made it fail."""
    transaction.check_open()
    match transaction.connection.pgconn.transaction_status:
        case TransactionStatus.IDLE:
            message = (
                "this transaction was committed or rolled back by a statement inside it, so this call would commit "
                "separately: leave that to the `with` block"
            )
            raise ConfigError(message)
        case TransactionStatus.INERROR:
            raise _has_failed()
        case _:
            pass


def _has_failed() -> ConfigError:
    return ConfigError(
        "a statement inside this transaction failed, so PostgreSQL rolls back the whole transaction, even though the "
        "error was caught. Run statements that may fail in a savepoint: `with connection.transaction():`, or `async "
        "with` in async code"
    )


async def _roll_back(connection: AsyncConnection[Any]) -> None:
    """Roll back; if that fails, drop the connection: the server then rolls back by itself."""
    if connection.closed or is_idle(connection):
        return
    try:
        await connection.execute(b"rollback")
    except psycopg.Error:
        drop(connection)
    except asyncio.CancelledError:
        drop(connection)
        raise
