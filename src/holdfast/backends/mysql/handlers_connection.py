"""The connections of handlers' transactions: a handler runs statements, but does not end the transaction.

After a deadlock the server has rolled the transaction back, and each further statement would commit by itself: so it is
refused here. The same holds after a statement that commits implicitly, as `create table` does.

Guarded are the methods of the drivers through which every command and every answer passes, whatever the handler calls:
a prepared statement, the later statements of a message, the rows of an unbuffered cursor.
"""

# ruff: noqa: SLF001 - some of these methods are private ones of the drivers

from __future__ import annotations

from typing import Any, NoReturn

from asyncmy.protocol import MysqlPacket
from pymysql.protocol import MysqlPacket as BlockingPacket

from holdfast.backends.mysql.driver import BlockingConnection, VerbConnection, has_unread, is_in_transaction
from holdfast.backends.mysql.error_map import is_conflict, is_read_only
from holdfast.errors import ConfigError


class TransactionGuard:
    """What both kinds of connection share. `is_lent`: a handler's transaction is open on it."""

    is_lent = False
    failure: Exception | None = None
    """The conflict for which the server has rolled back, or its refusal to write."""
    is_stale = False
    """Whether it is unknown, since an error, whether the transaction is open: answers with errors do not say so."""

    def check(self) -> None:
        """Raise if a statement would run outside the transaction."""
        if not self.is_lent:
            return
        if self.failure is not None:
            raise self.failure
        if not is_in_transaction(self):
            message = (
                "the handler's transaction has been ended by one of its own statements (commit, rollback, or one that "
                "commits implicitly, such as create table), so what follows would commit separately: leave that to the "
                "`with` block"
            )
            raise ConfigError(message)

    def note(self, error: Exception) -> None:
        """Remember an error after which nothing can be written."""
        self.is_stale = True
        if self.is_lent and (is_conflict(error) or is_read_only(error)):
            self.failure = error

    def lend(self) -> None:
        """Guard the connection from now on: a transaction has begun on it."""
        self.failure, self.is_stale, self.is_lent = None, False, True

    def begin(self) -> NoReturn:
        """Raise: the transaction has begun."""
        _refuse("begin")

    def commit(self) -> NoReturn:
        """Raise: leaving the block commits."""
        _refuse("commit")

    def rollback(self) -> NoReturn:
        """Raise: an exception rolls back."""
        _refuse("rollback")


def _refuse(what: str) -> NoReturn:
    message = (
        f"handlers must not call {what}(): leaving the `with ctx.transaction()` block commits, an exception rolls "
        "back; for a part that may fail use `savepoint` and `rollback to savepoint`"
    )
    raise ConfigError(message)


class MysqlHandlersConnection(TransactionGuard, VerbConnection):
    """The connection of an async handler."""

    async def execute(self, statement: str, values: Any = None) -> Any:
        """Run a statement, as on the connections of other stores, and return its cursor."""
        driver: Any = self
        cursor = driver.cursor()
        await cursor.execute(statement, values)
        return cursor

    async def settle(self) -> None:
        """Read what the handler has left unread; raise if the transaction has failed or ended."""
        driver: Any = self
        while self.is_lent and has_unread(driver):
            await driver.next_result()
        if self.is_lent and self.is_stale and self.failure is None:
            self.is_stale = False
            await driver.ping(False)
        self.check()

    async def _execute_command(self, command: Any, sql: Any) -> None:
        await self.settle()
        driver: Any = super()
        await driver._execute_command(command, sql)

    async def read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Read a part of an answer."""
        try:
            driver: Any = super()
            return await driver.read_packet(packet_type)
        except Exception as error:
            self.note(error)
            raise


class MysqlHandlersBlockingConnection(TransactionGuard, BlockingConnection):
    """The connection of a handler in a thread."""

    def execute(self, statement: str, values: Any = None) -> Any:
        """Run a statement, as on the connections of other stores, and return its cursor."""
        driver: Any = self
        cursor = driver.cursor()
        cursor.execute(statement, values)
        return cursor

    def settle(self) -> None:
        """Do the same in this thread."""
        driver: Any = self
        while self.is_lent and has_unread(driver):
            driver.next_result()
        if self.is_lent and self.is_stale and self.failure is None:
            self.is_stale = False
            driver.ping(False)
        self.check()

    def _execute_command(self, command: Any, sql: Any) -> None:
        self.settle()
        driver: Any = super()
        driver._execute_command(command, sql)

    def _read_packet(self, packet_type: Any = BlockingPacket) -> Any:
        try:
            driver: Any = super()
            return driver._read_packet(packet_type)
        except Exception as error:
            self.note(error)
            raise
