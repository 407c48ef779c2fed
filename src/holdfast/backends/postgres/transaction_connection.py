"""The connection that an async handler is given in its transaction.

It is a connection of the driver like any other, but that its transaction is begun and ended here: BEGIN goes with the
statement behind it, and COMMIT with a position before it. That makes two round trips besides the handler's own, and for
a task one more. What goes with BEGIN and COMMIT is not prepared: the driver drops all prepared statements of a session,
those of others too, after a rollback. The completion of a task is a statement of the driver's, and prepared like the
handler's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import psycopg
from psycopg.pq import PipelineStatus

from holdfast.backends.postgres.wire import LibpqConnection, fill

_NOTHING: Mapping[str, object] = {}


class HandlersConnection(LibpqConnection):
    """A connection on which a handler's statements run, in a transaction that is ours to begin and to end."""

    async def begin_with(self, text: bytes, parameters: Mapping[str, object]) -> list[Any]:
        """Begin, run a statement, and return its rows."""
        return (await self._together((b"begin", _NOTHING), (text, parameters)))[1]

    async def commit_with(self, text: bytes, parameters: Mapping[str, object]) -> list[Any]:
        """Run a statement, commit, and return its rows; a statement that fails keeps the commit from being done."""
        return (await self._together((text, parameters), (b"commit", _NOTHING)))[0]

    async def end(self, command: bytes) -> None:
        """Commit or roll back; raises `InFailedSqlTransaction` if the server has rolled back in place of a commit."""
        done = (await self.execute(command)).statusmessage
        if done is not None and done.lower().encode() != command:
            message = "the transaction had failed, so the server has rolled it back"
            raise psycopg.errors.InFailedSqlTransaction(message)

    async def commit(self) -> NoReturn:
        """Refuse: it would end the transaction before the completion is in it."""
        self._refuse("commit")

    async def rollback(self) -> NoReturn:
        """Refuse."""
        self._refuse("rollback")

    @staticmethod
    def _refuse(what: str) -> NoReturn:
        message = (
            f"{what}() is not for handlers: leaving the `async with ctx.transaction()` block commits, an exception "
            "rolls back; for a part of the work use `async with connection.transaction()`, a savepoint"
        )
        raise psycopg.ProgrammingError(message)

    async def _together(self, *queries: tuple[bytes, Mapping[str, object]]) -> list[list[Any]]:
        async with self.lock:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                message = "a pipeline of this connection is still open: leave its block before that of the transaction"
                raise psycopg.ProgrammingError(message)
            filled = [fill(self, text, parameters) for text, parameters in queries]
            results = await self._answers_together([one.send for one in filled])
            return [one.rows(result) for one, result in zip(filled, results, strict=True)]
