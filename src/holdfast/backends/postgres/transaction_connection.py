"""The connections that handlers get in their transactions: async ones, and those of handlers in threads.

Both remember the error that made their transaction fail: the handler may have caught it. That of an async handler is an
ordinary connection of the driver, except that its transaction begins and ends here: BEGIN is sent together with the
statement that locks the lease or the share, and COMMIT together with the one that completes the job or writes the
position. That makes two round trips in addition to the handler's own.

Statements sent with BEGIN and COMMIT are prepared here, not by the driver. After a rollback the driver drops all
prepared statements of a session, including those of others; these are then prepared again. A handler that drops them
by itself (`deallocate all`) is run again, once for each connection, without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, get_args

import psycopg
from psycopg import Connection
from psycopg.abc import RV, PQGen
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast.backends.postgres.wire import Filled, LibpqConnection, command, fill
from holdfast.model.isolation import READ_COMMITTED, Isolation

_BEGIN = {level: command(f"begin isolation level {level}".encode()) for level in get_args(Isolation)}
_COMMIT = command(b"commit")


class HandlersBlockingConnection(Connection[Any]):
    """A connection for the statements of a handler in a thread."""

    failure: psycopg.Error | None = None
    """The last error of the server, except those that say only that the transaction had failed before."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for the server, as the driver does for every statement, and remember its error."""
        try:
            return super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            self.failure = _cause(error, self.failure)
            raise


class HandlersConnection(LibpqConnection):
    """A connection for an async handler's statements, in a transaction that the store begins and ends."""

    failure: psycopg.Error | None = None
    """The last error of the server, except those that say only that the transaction had failed before."""

    has_joined = False
    """Whether a verb has run in the transaction: it may have ended the job, or made another job wait for it."""

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for the server, as the driver does for every statement, and remember its error.

        Statements outside a pipeline are led as ours are, which takes less time than the driver's way.
        """
        try:
            if args or kwargs or self.pgconn.pipeline_status != PipelineStatus.OFF:
                return await super().wait(gen, *args, **kwargs)
            return await self._answers(gen)
        except psycopg.Error as error:
            self.failure = _cause(error, self.failure)
            raise

    async def begin_with(
        self, text: bytes, parameters: Mapping[str, object], isolation: Isolation = READ_COMMITTED
    ) -> list[Any]:
        """Begin the transaction, run a statement, and return its rows."""
        queries = _BEGIN[isolation], fill(self, text, parameters)
        self.has_joined = False
        try:
            return (await self._together(*queries))[1]
        except psycopg.errors.InvalidSqlStatementName:
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                await self.end(b"rollback")
            return (await self._together(*queries))[1]

    async def commit_with(self, text: bytes, parameters: Mapping[str, object], *before: bytes) -> list[Any]:
        """Run a statement, commit, and return its rows; if the statement fails, nothing is committed.

        `before`: commands without parameters that go before it.

        Once the statement is sent, a cancellation takes effect after the answer to the commit.
        """
        try:
            commands = map(command, before)
            return (await self._together(*commands, fill(self, text, parameters), _COMMIT, to_the_end=True))[-2]
        except psycopg.errors.InvalidSqlStatementName as error:
            message = "a statement of the handler has dropped the prepared statements of its session"
            raise psycopg.errors.SerializationFailure(message) from error

    async def end(self, command: bytes) -> None:
        """Commit or roll back; raises `InFailedSqlTransaction` if the server rolled back instead of committing."""
        done = (await self.execute(command)).statusmessage
        if done is not None and done.lower().encode() != command:
            message = "the transaction had failed, so the server rolled it back"
            raise psycopg.errors.InFailedSqlTransaction(message)

    async def commit(self) -> NoReturn:
        """Raise: a commit would end the transaction before the completion is in it."""
        self._refuse("commit")

    async def rollback(self) -> NoReturn:
        """Raise: leaving the block ends the transaction."""
        self._refuse("rollback")

    @staticmethod
    def _refuse(what: str) -> NoReturn:
        message = (
            f"handlers must not call {what}(): leaving the `async with ctx.transaction()` block commits, an exception "
            "rolls back; for a savepoint use `async with connection.transaction()`"
        )
        raise psycopg.ProgrammingError(message)

    async def _together(self, *queries: Filled, to_the_end: bool = False) -> list[list[Any]]:
        async with self.lock:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                message = "a pipeline of this connection is still open: leave its block before the transaction block"
                raise psycopg.ProgrammingError(message)
            try:
                return await self._rows_together([self._prepare(query) for query in queries], to_the_end=to_the_end)
            except psycopg.errors.InvalidSqlStatementName:
                self.prepared = None
                raise

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """Note that the driver drops all prepared statements of the session."""
        if name is None and self.prepared is not None:
            self.prepared.clear()
        return super()._deallocate(name)


def _cause(error: psycopg.Error, before: psycopg.Error | None) -> psycopg.Error | None:
    return before if isinstance(error, psycopg.errors.InFailedSqlTransaction) else error
