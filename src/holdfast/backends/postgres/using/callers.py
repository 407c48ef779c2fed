"""Run verbs in the caller's open transaction on PostgreSQL.

If one of our statements fails, the transaction has failed: the caller must roll it back, or roll back to its last
savepoint. No job is reported as ready: the caller's writes become visible at a commit that is not observed here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg as driver
from psycopg import Connection

from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.execute import drive, drive_blocking
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.using import asyncpg, psycopg
from holdfast.backends.postgres.using.identity import Identity, look
from holdfast.backends.sql.using.callers import Callers
from holdfast.backends.sql.using.django import DjangoConnections
from holdfast.backends.sql.using.kinds import has_failed
from holdfast.backends.sql.using.sqlalchemy import Driver, SqlAlchemyConnections
from holdfast.concurrency.statement_threads import in_own_thread
from holdfast.store.steps import Ready, Steps

T = TypeVar("T")
_KINDS = (
    "a psycopg connection or cursor (also async), an asyncpg connection, a SQLAlchemy Session or Connection (also "
    "async), or a Django connection"
)
_FAILED_BEFORE = "25P02"


def _start_asyncpg(connection: Any, raw: Any) -> None:
    """Begin on the server, too: over asyncpg that happens only with the first statement."""
    if not raw.is_in_transaction():
        connection.exec_driver_sql("select 1")


_OVER_PSYCOPG = {"postgresql+psycopg": Driver(psycopg.check_open)}
_OVER_ASYNCPG = {"postgresql+asyncpg": Driver(asyncpg.check_open, _start_asyncpg)}
_RECOGNISERS = (
    psycopg.recognise,
    asyncpg.recognise,
    SqlAlchemyConnections(blocking=_OVER_PSYCOPG, awaited=_OVER_PSYCOPG | _OVER_ASYNCPG).recognise,
    DjangoConnections("postgresql", "PostgreSQL", psycopg.check_of_django).recognise,
)


class PostgresCallers(Callers):
    """The connections that callers pass, of any kind."""

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        super().__init__(_KINDS, _RECOGNISERS)
        self._statements = statements
        self._identity = Identity(location, statements)

    def drive_blocking(self, raw: Connection[Any], steps: Steps[T]) -> T:  # noqa: D102 - see `Callers`
        with _explained(raw):
            if not self._identity.is_known(raw):
                self._identity.compare(raw, drive_blocking(raw, self._statements, look(), Ready()))
            return drive_blocking(raw, self._statements, steps, Ready())

    async def drive(self, raw: Any, steps: Steps[T]) -> T:  # noqa: D102
        with _explained(raw):
            if not self._identity.is_known(raw):
                found = await self._drive(raw, look())
                await in_own_thread(lambda: self._identity.compare(raw, found))
            return await self._drive(raw, steps)

    async def _drive(self, raw: Any, steps: Steps[T]) -> T:
        if asyncpg.is_asyncpg(raw):
            return await asyncpg.drive(raw, self._statements, steps)
        return await drive(raw, self._statements, steps, Ready())


@contextmanager
def _explained(raw: Any) -> Generator[None]:
    try:
        yield
    except driver.Error as error:
        if error.sqlstate == _FAILED_BEFORE:
            raise has_failed() from error
        broken = raw.is_closed() if asyncpg.is_asyncpg(raw) else raw.closed
        raise translate(error, "the caller's connection", broken=broken) from error
