"""Runners of verbs: each verb in a separate transaction, or in the one that the calling handler holds open.

Every error is answered with a rollback: after a deadlock the session is outside of its transaction, and after a lock
wait only one statement is undone. A verb that was given up in favour of another one is repeated, a few times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from holdfast.backends.mysql.connecting import LOCK_WAIT
from holdfast.backends.mysql.driver import VerbConnection, drop, is_idle, is_open
from holdfast.backends.mysql.error_map import LOCK_WAIT as WAITED_TOO_LONG
from holdfast.backends.mysql.error_map import (
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
from holdfast.backends.mysql.pool import MysqlPools
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.errors import SchemaMismatch
from holdfast.store.handler_transaction import entered
from holdfast.store.steps import Place, Ready, Runner, Verb

T = TypeVar("T")

_ATTEMPTS = 8
_ATTEMPTS_TO_WAIT = 2
_PAUSE = 0.02
_ERRORS: tuple[type[Exception], ...] = (*DriverError, TimeoutError, OSError)


class _VerbWay(NamedTuple):
    """How a verb runs: in a transaction that `begin` begins, or by itself. `lock_wait`: the seconds for one lock."""

    begin: tuple[str, ...] = ()
    writes: bool = True
    lock_wait: int = LOCK_WAIT


_ONCE = _VerbWay()
_LOOK = _VerbWay(writes=False)
_WRITE = _VerbWay(("start transaction",))
_BRIEFLY = _VerbWay(("start transaction",), lock_wait=1)
_READ = _VerbWay(("set transaction isolation level repeatable read", "start transaction read only"), writes=False)


class MysqlPoolRunner:
    """Runs each verb on a connection of the pool, or inside the transaction that the calling handler holds open."""

    def __init__(
        self,
        pools: MysqlPools,
        statements: MysqlStatements,
        location: MysqlLocation,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        """`became_ready` is called after a commit that made jobs ready, with their places."""
        self._became_ready = became_ready
        self._pools = pools
        self._statements = statements
        self._where = location.url
        self._reply_timeout = location.reply_timeout

    def once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run statements that commit by themselves; raise `OutcomeUnknown` if a reply is lost."""
        return self._run(verb, _ONCE)

    def look(self, verb: Verb[T]) -> Awaitable[T]:
        """Run statements that change nothing."""
        return self._run(verb, _LOOK)

    def write(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction."""
        return self._run(verb, _WRITE)

    def write_briefly(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction that waits a second at most for a lock, and is not repeated when it has."""
        return self._run(verb, _BRIEFLY)

    def read(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one read-only transaction with one snapshot."""
        return self._run(verb, _READ)

    def apart(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction that commits independently of the handler's transaction."""
        return self._repeat(verb, _WRITE)

    def losses(self) -> int:
        """Return the number of broken connections so far, after a check of the connection that is used next."""
        self._pools.here.weed()
        return self._pools.losses

    @property
    def joins(self) -> bool:
        """Whether the current call runs inside a handler's transaction."""
        return self._entered() is not None

    def _entered(self) -> MysqlTransaction | None:
        """Return the transaction of this store that the calling handler holds open."""
        transaction = entered(self._statements)
        return transaction if isinstance(transaction, MysqlTransaction) else None

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call `act` once the writes are visible: now, or when the handler's transaction has committed."""
        transaction = self._entered()
        if transaction is not None:
            transaction.after_commit.append(act)
        else:
            act()

    def _run(self, verb: Verb[T], way: _VerbWay) -> Awaitable[T]:
        transaction = self._entered()
        return self._repeat(verb, way) if transaction is None else self._joined(transaction, verb)

    async def _joined(self, transaction: MysqlTransaction, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is open and has not failed; never outside of it.

        A duplicate undoes its statement alone: the verb looks again, and finds the row.
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
                waited = code_of(error) == WAITED_TOO_LONG
                if number == _ATTEMPTS or (waited and (number >= _ATTEMPTS_TO_WAIT or way.lock_wait < LOCK_WAIT)):
                    raise translate(error, self._where, broken=False) from error
            await asyncio.sleep(_PAUSE * number * random.random())  # noqa: S311 - jitter, not a secret
        raise AssertionError

    async def _alone(self, verb: Verb[T], way: _VerbWay) -> T:
        pool = self._pools.here
        connection = await pool.take()
        ready = Ready()
        session = Session(
            self._statements,
            begin=[*_waiting(connection, way.lock_wait), *way.begin],
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
        drop(connection)  # whatever the session has kept, such as the lock of a migration, goes with it
        if broken or is_read_only(error):  # idle connections lead to the same server, over the same network
            self._pools.drop_idle()
        translated = translate(error, self._where, broken=broken, committing=committing)
        if isinstance(translated, SchemaMismatch):
            self._pools.lose()  # a new installation has new lanes: cached ids are invalid
        raise translated from error


def _is_repeated(error: Exception) -> bool:
    """Return whether a repetition may succeed: a conflict, or a row that another transaction has just added."""
    return is_conflict(error) or is_duplicate(error)


def _waiting(connection: VerbConnection, seconds: int) -> list[str]:
    """Return the statement that sets how long the session waits for a lock, if it must be changed."""
    if connection.lock_wait == seconds:
        return []
    connection.lock_wait = seconds
    return [f"set session innodb_lock_wait_timeout = {seconds}"]


def runs_alone(runner: Runner) -> bool:
    """Return whether the next verb of a runner has a transaction of its own."""
    return isinstance(runner, MysqlPoolRunner) and not runner.joins
