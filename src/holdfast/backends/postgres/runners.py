"""Runners of verbs: each verb in a separate transaction, or in the one that the calling handler holds open.

The server aborts one of two transactions that deadlock; that one is repeated here, a few times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection

from holdfast.backends.postgres.connecting import READ_COMMITTED_FRAME, drop, is_idle
from holdfast.backends.postgres.error_map import is_conflict, is_read_only, translate
from holdfast.backends.postgres.execute import Frame, drive
from holdfast.backends.postgres.handler_transaction import PostgresTransaction
from holdfast.backends.postgres.timeouts import bounded
from holdfast.backends.sql.pool_runner import SqlPoolRunner, Ways
from holdfast.errors import SchemaMismatch
from holdfast.store.steps import Ready, Runner, Verb

T = TypeVar("T")

BRIEFLY = 500  # milliseconds to wait for a lock: verbs hold theirs for less
_ATTEMPTS = 6
_PAUSE = 0.02
# A process that is stopped between two statements would keep its locks: a partition's head, the leadership. The server
# then ends its session; a verb takes milliseconds, and is safe to repeat.
_BEGIN_STEPS = READ_COMMITTED_FRAME[0] + b"; set local idle_in_transaction_session_timeout = '5s'"
# Overviews read whole tables: `connecting.py` explains why that is off elsewhere.
_SNAPSHOT = (
    b"begin isolation level repeatable read read only; set local enable_seqscan = on; set local enable_bitmapscan = on"
)


class _Way(NamedTuple):
    """How a verb runs: in a transaction that `begin` begins, or between the statements of `frame`, or by itself."""

    begin: bytes | None = None
    writes: bool = True
    frame: Frame = ()


_ONCE = _Way()
_LOOK = _Way(writes=False)
_WRITE = _Way(_BEGIN_STEPS)
_BRIEFLY = _Way(_BEGIN_STEPS + b"; set local lock_timeout = '%dms'" % BRIEFLY)
_READ = _Way(_SNAPSHOT, writes=False)
_AT_ONCE = _Way(frame=READ_COMMITTED_FRAME)


class SwiftRunner(Runner, Protocol):
    """A runner that can also run a verb in one round trip."""

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb whose statements go together: one transaction, in one round trip where possible."""
        ...


class PoolRunner(SqlPoolRunner[_Way, PostgresTransaction]):
    """The runner over connections of psycopg."""

    ways = Ways(once=_ONCE, look=_LOOK, write=_WRITE, write_briefly=_BRIEFLY, read=_READ, apart=_ONCE)
    transaction = PostgresTransaction

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction whose BEGIN and COMMIT go together with its statements."""
        return self._run(verb, _AT_ONCE)

    async def _joined(self, transaction: PostgresTransaction, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is open and has not failed; never outside of it, only once.

        Errors of our own statements are translated, except a unique violation, which the verb itself handles.
        """
        try:
            return await transaction.run(verb())
        except psycopg.errors.UniqueViolation:
            raise
        except psycopg.errors.InFailedSqlTransaction as error:
            raise transaction.has_failed() from error
        except psycopg.Error as error:
            raise translate(error, self._where, broken=False) from error

    async def _repeat(self, verb: Verb[T], way: _Way) -> T:
        for number in range(1, _ATTEMPTS + 1):
            try:
                return await self._alone(verb, way)
            except psycopg.Error as error:
                if not is_conflict(error):
                    raise
                if number == _ATTEMPTS:
                    raise translate(error, self._where, broken=False) from error
            await asyncio.sleep(_PAUSE * number * random.random())  # noqa: S311 - jitter, not a secret
        raise AssertionError

    async def _alone(self, verb: Verb[T], way: _Way) -> T:
        pool = self._pools.here
        connection = await pool.take()
        ready = Ready()
        begin, writes, frame = way
        committing = writes and begin is None  # the next reply may be that of the commit
        try:
            if begin is not None:
                await self._execute(connection, begin)
            result = await drive(
                connection, self._statements, verb(), ready, reply_timeout=self._reply_timeout, frame=frame
            )
            if begin is not None:
                committing = writes
                await self._execute(connection, b"commit")
        except BaseException as error:
            await self._roll_back(connection)
            if isinstance(error, psycopg.Error):
                self._explain(connection, error, committing=committing)
            raise
        finally:
            pool.put(connection)
        if ready:
            self._became_ready(ready.places)
        return result

    async def _execute(self, connection: AsyncConnection[Any], command: bytes) -> None:
        with bounded(connection, self._reply_timeout):
            await connection.execute(command)

    async def _roll_back(self, connection: AsyncConnection[Any]) -> None:
        """Roll back; if that fails, drop the connection: the server then rolls back by itself."""
        if connection.closed or is_idle(connection):
            return
        try:
            await self._execute(connection, b"rollback")
        except BaseException as error:
            drop(connection)
            if not isinstance(error, psycopg.Error):
                raise

    def _explain(self, connection: AsyncConnection[Any], error: psycopg.Error, *, committing: bool) -> None:
        """Raise the translated error, and drop connections that are no longer usable.

        Returns if the caller handles the driver's error: it repeats the verb, or uses another statement.
        """
        if isinstance(error, psycopg.errors.UniqueViolation) or is_conflict(error):
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
