"""The connections that handlers get in their transactions: async ones, and those of handlers in threads.

Both remember the error that made their transaction fail: the handler may have caught it. That of an async handler is an
ordinary connection of the driver, except that its transaction begins and ends here: BEGIN is sent together with the
statement after it, and COMMIT together with the statement that writes the position. That makes two round trips in
addition to the handler's own, and one more for a task. Statements sent with BEGIN and COMMIT are not prepared: after
a rollback the driver drops all prepared statements of a session, including those of others. The completion of a task is
run by the driver, and prepared like the handler's own statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import psycopg
from psycopg import Connection
from psycopg.abc import RV, PQGen
from psycopg.pq import PipelineStatus

from holdfast.backends.postgres.wire import LibpqConnection, fill
from holdfast.model.isolation import READ_COMMITTED, Isolation

_NOTHING: Mapping[str, object] = {}


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

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for the server, as the driver does for every statement, and remember its error."""
        try:
            return await super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            self.failure = _cause(error, self.failure)
            raise

    async def begin_with(
        self, text: bytes, parameters: Mapping[str, object], isolation: Isolation = READ_COMMITTED
    ) -> list[Any]:
        """Begin the transaction, run a statement, and return its rows."""
        begin = f"begin isolation level {isolation}".encode()
        return (await self._together((begin, _NOTHING), (text, parameters)))[1]

    async def commit_with(self, text: bytes, parameters: Mapping[str, object]) -> list[Any]:
        """Run a statement, commit, and return its rows; if the statement fails, nothing is committed."""
        return (await self._together((text, parameters), (b"commit", _NOTHING)))[0]

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

    async def _together(self, *queries: tuple[bytes, Mapping[str, object]]) -> list[list[Any]]:
        async with self.lock:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                message = "a pipeline of this connection is still open: leave its block before the transaction block"
                raise psycopg.ProgrammingError(message)
            return await self._rows_together([(fill(self, text, parameters), None) for text, parameters in queries])


def _cause(error: psycopg.Error, before: psycopg.Error | None) -> psycopg.Error | None:
    return before if isinstance(error, psycopg.errors.InFailedSqlTransaction) else error
