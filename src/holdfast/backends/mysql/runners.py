"""Runners of verbs: each verb in a separate transaction, or in the one that the calling handler holds open.

Every error is answered with a rollback: after a deadlock the session is outside of its transaction, and after a lock
wait only one statement is undone. A verb that was rolled back in favour of another one is repeated a few times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from holdfast.backends.mysql.driver import BEGIN, VerbConnection, drop, is_idle, is_open
from holdfast.backends.mysql.error_map import (
    LOCK_WAIT,
    DriverError,
    code_of,
    is_conflict,
    is_duplicate,
    is_read_only,
    is_refused,
    translate,
)
from holdfast.backends.mysql.execute import Session, drive
from holdfast.backends.mysql.handler_transaction import MysqlTransaction
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.sql.pool_runner import SqlPoolRunner, Ways
from holdfast.errors import SchemaMismatch
from holdfast.store.connection_pool import AsyncPools
from holdfast.store.steps import Place, Ready, Verb

T = TypeVar("T")

_ATTEMPTS = 8
_ATTEMPTS_TO_WAIT = 2
_PAUSE = 0.02
_BRIEF = 1  # seconds
_ERRORS: tuple[type[Exception], ...] = (*DriverError, TimeoutError, OSError)


class _VerbWay(NamedTuple):
    """How a verb runs: in a transaction that `begin` begins, or by itself. `briefly`: one wait for a lock at most."""

    begin: tuple[str, ...] = ()
    writes: bool = True
    briefly: bool = False


_ONCE = _VerbWay()
_LOOK = _VerbWay(writes=False)
_WRITE = _VerbWay((BEGIN,))
_BRIEFLY = _VerbWay((BEGIN,), briefly=True)
_READ = _VerbWay(("set transaction isolation level repeatable read", "start transaction read only"), writes=False)


class MysqlPoolRunner(SqlPoolRunner[_VerbWay, MysqlTransaction]):
    """The runner over connections of this store's drivers."""

    ways = Ways(once=_ONCE, look=_LOOK, write=_WRITE, write_briefly=_BRIEFLY, read=_READ, apart=_WRITE)
    transaction = MysqlTransaction

    def __init__(
        self,
        pools: AsyncPools[VerbConnection],
        statements: MysqlStatements,
        location: MysqlLocation,
        became_ready: Callable[[Sequence[Place]], None],
        suspect: Callable[[], None],
    ) -> None:
        """`became_ready` is as in `SqlPoolRunner`, `suspect` as in `TransactionPlace`."""
        super().__init__(pools, statements, location, became_ready)
        self._lock_wait = location.lock_wait()
        self._suspect = suspect

    async def _joined(self, transaction: MysqlTransaction, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is open and has not failed; never outside of it.

        After a duplicate the verb, of which the transaction has undone everything, looks again and finds the row.
        """
        for number in range(1, _ATTEMPTS + 1):
            try:
                return await transaction.run(verb())
            except _ERRORS as error:
                if is_refused(error):
                    raise
                if not is_duplicate(error) or number == _ATTEMPTS:
                    raise translate(error, self._where, broken=False) from error
        raise AssertionError

    async def _repeat(self, verb: Verb[T], way: _VerbWay) -> T:
        for number in range(1, _ATTEMPTS + 1):
            try:
                return await self._alone(verb, way)
            except DriverError as error:
                if not _is_repeated(error):
                    raise
                waited = code_of(error) == LOCK_WAIT
                if number == _ATTEMPTS or (waited and (number >= _ATTEMPTS_TO_WAIT or way.briefly)):
                    raise translate(error, self._where, broken=False) from error
            await asyncio.sleep(_PAUSE * number * random.random())  # noqa: S311 - jitter, not a secret
        raise AssertionError

    async def _alone(self, verb: Verb[T], way: _VerbWay) -> T:
        pool = self._pools.here
        connection = await pool.take()
        ready = Ready()
        lock_wait = _BRIEF if way.briefly else self._lock_wait
        waiting = [] if connection.lock_wait == lock_wait else [f"set session innodb_lock_wait_timeout = {lock_wait}"]
        session = Session(
            self._statements,
            begin=[*waiting, *way.begin],
            is_alone=bool(way.begin),
            reply_timeout=self._reply_timeout,
        )
        session.is_committing = way.writes and not way.begin
        try:
            result = await drive(connection, session, verb(), ready)
            if way.begin and session.has_begun and not session.has_committed:
                session.is_committing = way.writes
                async with asyncio.timeout(self._reply_timeout):
                    await connection.ask(["commit"])
        except BaseException as error:
            await self._roll_back(connection)
            if isinstance(error, _ERRORS):
                self._explain(connection, error, committing=session.is_committing)
            raise
        finally:
            if session.has_begun:
                connection.lock_wait = lock_wait
            if session.is_migrating:  # the lock goes with the session, however the migration has ended
                drop(connection)
            pool.put(connection)
        if ready:
            self._became_ready(ready.places)
        return result

    async def _roll_back(self, connection: VerbConnection) -> None:
        """Roll back; if that fails, drop the connection: the server then rolls back by itself."""
        if not is_open(connection):
            drop(connection)
            return
        try:
            async with asyncio.timeout(self._reply_timeout):
                await connection.ask(["rollback"])
        except BaseException as error:
            drop(connection)
            if not isinstance(error, _ERRORS):
                raise

    def _explain(self, connection: VerbConnection, error: Exception, *, committing: bool) -> None:
        """Raise the translated error, and drop connections that are no longer usable.

        Returns if the caller handles the driver's error: it repeats the verb, or uses another statement.
        """
        if is_refused(error) or _is_repeated(error):
            return
        broken = not is_idle(connection)
        drop(connection)
        if broken or is_read_only(error):  # idle connections lead to the same server, over the same network
            self._suspect()
        translated = translate(error, self._where, broken=broken, committing=committing)
        if isinstance(translated, SchemaMismatch):
            self._pools.lose()  # a new installation has new lanes: cached ids are invalid
        raise translated from error


def _is_repeated(error: Exception) -> bool:
    """Return whether a repetition may succeed: a conflict, or a row that another transaction has just added."""
    return is_conflict(error) or is_duplicate(error)
