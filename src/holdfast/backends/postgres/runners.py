"""Where the verbs are run: each in a transaction of its own, in the handler's, or in the caller's.

The server breaks one of two transactions off when they wait for each other; that one is run again here, a few times.
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
from holdfast.backends.sql.handler_transaction import entered
from holdfast.backends.sql.steps import Place, Ready
from holdfast.errors import ConfigError, SchemaMismatch
from holdfast.store.steps import Runner, Verb

T = TypeVar("T")
HandlersTransaction = PostgresAsyncTransaction | PostgresBlockingTransaction

_TRIES = 6
_PAUSE = 0.02
_BEGIN = b"begin isolation level read committed"
# A process that is stopped between two statements would keep what it has locked from everybody: a partition's head, the
# leadership. The server ends it then; a verb takes milliseconds, and is safe to repeat.
_BEGIN_STEPS = _BEGIN + b"; set local idle_in_transaction_session_timeout = '5s'"
_COMMIT = b"commit"
# Whoever looks at everything reads whole tables: see `connecting.py` for why that is off elsewhere.
_SNAPSHOT = (
    b"begin isolation level repeatable read read only; set local enable_seqscan = on; set local enable_bitmapscan = on"
)


class SwiftRunner(Runner, Protocol):
    """Runs also what fits into one round trip."""

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that asks all its statements together: one transaction, in one round trip where that can be."""
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
        """One statement: when its reply is lost, nobody knows whether it was done."""
        return await self._joined_or(verb, lambda: self._alone(verb, writes=True))

    async def look(self, verb: Verb[T]) -> T:
        """One statement that changes nothing."""
        return await self._joined_or(verb, lambda: self._alone(verb, writes=False))

    async def write(self, verb: Verb[T]) -> T:
        """One transaction."""
        return await self._joined_or(verb, lambda: self._transact(_BEGIN_STEPS, verb))

    async def at_once(self, verb: Verb[T]) -> T:
        """One transaction that begins and ends with its statements."""
        return await self._joined_or(verb, lambda: self._framed(verb))

    async def read(self, verb: Verb[T]) -> T:
        """One snapshot."""
        return await self._joined_or(verb, lambda: self._transact(_SNAPSHOT, verb))

    async def apart(self, verb: Verb[T]) -> T:
        """One statement that is committed whatever becomes of the handler's transaction."""
        return await self._repeat(lambda: self._alone(verb, writes=True))

    def losses(self) -> int:
        """Return how often a connection is known to have broken, after a look at the one that is used next."""
        self._pools.here.weed()
        return self._pools.losses

    @property
    def joins(self) -> bool:
        """Whether verbs run inside a handler's transaction now."""
        return self._entered() is not None

    def _entered(self) -> HandlersTransaction | None:
        """Return the transaction of this store that the calling handler holds open."""
        transaction = entered(self._statements)
        return transaction if isinstance(transaction, HandlersTransaction) else None

    def after_commit(self, act: Callable[[], None]) -> None:
        """Do something once what was written can be seen: now, or when the handler's transaction has committed."""
        transaction = self._entered()
        if transaction is not None:
            transaction.after_commit.append(act)
        else:
            act()

    async def _joined_or(self, verb: Verb[T], alone: Callable[[], Awaitable[T]]) -> T:
        transaction = self._entered()
        return await (self._repeat(alone) if transaction is None else self._joined(transaction, verb))

    async def _joined(self, transaction: HandlersTransaction, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is whole: never outside of it, nor repeated.

        What the server says of our own statements is told in our words; a violated key is an answer to the verb.
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
        for number in range(1, _TRIES + 1):
            try:
                return await work()
            except psycopg.Error as error:
                if not is_worth_repeating(error):
                    raise
                if number == _TRIES:
                    raise translate(error, self._where, broken=False) from error
            await asyncio.sleep(_PAUSE * number * random.random())  # noqa: S311 - spreads rivals, hides nothing
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
        """Raise what the driver's error means, and let go of connections that lead nowhere.

        Returns if the error itself is wanted: the verb is repeated for it, or takes another way.
        """
        if isinstance(error, psycopg.errors.UniqueViolation) or is_worth_repeating(error):
            return
        broken = connection.closed
        if is_read_only(error):
            drop(connection)
        if connection.closed:  # those that lie idle lead to the same place, by the same way
            self._pools.drop_idle()
        told = translate(error, self._where, broken=broken, committing=committing)
        if isinstance(told, SchemaMismatch):
            self._pools.lose()  # tables that are put there again have nothing in common with those of before
        raise told from error


def _check_whole(transaction: HandlersTransaction) -> None:
    """Refuse to join a transaction that its handler has ended or broken by a statement of its own."""
    transaction.check_open()
    match transaction.connection.pgconn.transaction_status:
        case TransactionStatus.IDLE:
            message = (
                "this transaction was committed or rolled back by a statement inside it, so this call would commit on "
                "its own: leave that to the `with` block"
            )
            raise ConfigError(message)
        case TransactionStatus.INERROR:
            raise _has_failed()
        case _:
            pass


def _has_failed() -> ConfigError:
    return ConfigError(
        "a statement inside this transaction failed, and PostgreSQL undoes the whole transaction for that, though the "
        "error was caught. Put what may fail into a savepoint: `with connection.transaction():`, or `async with` in "
        "async code"
    )


async def _roll_back(connection: AsyncConnection[Any]) -> None:
    """Undo; a connection that cannot is dropped by the pool, and the server undoes by itself."""
    if connection.closed or is_idle(connection):
        return
    try:
        await connection.execute(b"rollback")
    except psycopg.Error:
        drop(connection)
    except asyncio.CancelledError:
        drop(connection)
        raise
