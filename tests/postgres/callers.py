"""Every kind of connection that a caller may give as `using=`, behind the same few words.

So the same sentences can be said of each. What blocks runs in a thread of its own, as in a program of its kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import asyncpg
import psycopg
import sqlalchemy
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.servers.django_settings import add_database

T = TypeVar("T")


class Caller:
    """A connection of some kind; `begin` opens a transaction on it, as its users do."""

    is_async = True
    using: Any

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None: ...
    async def begin(self) -> None: ...
    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def shut(self) -> None:
        """Close the connection, as a program does by mistake before it is used."""

    async def give_up(self) -> None:
        """Forget a connection that the server has ended."""

    async def close(self) -> None: ...

    def _block(self) -> Any:
        """Return the library's own block for a savepoint."""

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        async with self._block():
            yield

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function where this connection is used."""
        return function()


class _Blocking(Caller):
    is_async = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread = ThreadPoolExecutor(1, "caller")

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        block = await self.run(self._block)
        await self.run(block.__enter__)
        try:
            yield
        except BaseException as error:
            await self.run(partial(block.__exit__, type(error), error, error.__traceback__))
            raise
        await self.run(lambda: block.__exit__(None, None, None))

    async def close(self) -> None:
        await self.run(self._close)
        self._thread.shutdown()

    def _close(self) -> None: ...


class PsycopgConnection(_Blocking):
    async def open(self) -> None:
        self._connection = await self.run(lambda: psycopg.connect(self.url))
        self.using = self._connection

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        def run() -> list[tuple[Any, ...]]:
            cursor = self._connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        return await self.run(run)

    async def commit(self) -> None:
        await self.run(self._connection.commit)

    async def rollback(self) -> None:
        await self.run(self._connection.rollback)

    async def shut(self) -> None:
        await self.run(self._connection.close)

    def _block(self) -> Any:
        return self._connection.transaction()

    def _close(self) -> None:
        self._connection.close()


class PsycopgCursor(PsycopgConnection):
    async def open(self) -> None:
        await super().open()
        self.using = self._connection.cursor()


class AsyncPsycopgConnection(Caller):
    async def open(self) -> None:
        self._connection = await psycopg.AsyncConnection.connect(self.url)
        self.using: Any = self._connection

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = await self._connection.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def shut(self) -> None:
        await self._connection.close()

    def _block(self) -> Any:
        return self._connection.transaction()

    async def close(self) -> None:
        await self._connection.close()


class AsyncPsycopgCursor(AsyncPsycopgConnection):
    async def open(self) -> None:
        await super().open()
        self.using = self._connection.cursor()


class AsyncpgConnection(Caller):
    async def open(self) -> None:
        self.using = await asyncpg.connect(self.url)

    async def begin(self) -> None:
        self._transaction = self.using.transaction()
        await self._transaction.start()

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.using.fetch(statement)]

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def shut(self) -> None:
        await self.using.close()

    def _block(self) -> Any:
        return self.using.transaction()

    async def close(self) -> None:
        await self.using.close()


class AsyncpgPool(AsyncpgConnection):
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.using = await self._pool.acquire()

    async def shut(self) -> None:
        await self._pool.release(self.using)

    async def close(self) -> None:
        self._pool.terminate()


class SqlalchemyConnection(_Blocking):
    async def open(self) -> None:
        self._engine = sqlalchemy.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        self.using = await self.run(self._engine.connect)

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        def run() -> list[tuple[Any, ...]]:
            result = self.using.execute(sqlalchemy.text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

        return await self.run(run)

    async def commit(self) -> None:
        await self.run(self.using.commit)

    async def rollback(self) -> None:
        await self.run(self.using.rollback)

    async def shut(self) -> None:
        await self.run(self.using.close)

    async def give_up(self) -> None:
        await self.run(self.using.invalidate)

    def _block(self) -> Any:
        return self.using.begin_nested()

    def _close(self) -> None:
        self.using.close()
        self._engine.dispose()


class SqlalchemySession(SqlalchemyConnection):
    async def open(self) -> None:
        await super().open()
        self.using.close()
        self.using = Session(self._engine)


class _AsyncSqlalchemy(Caller):
    driver: str
    _engine: Any

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        result = await self.using.execute(sqlalchemy.text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []

    def _engine_of(self, url: str) -> Any:
        return create_async_engine(url.replace("postgresql:", f"postgresql+{self.driver}:"))

    async def commit(self) -> None:
        await self.using.commit()

    async def rollback(self) -> None:
        await self.using.rollback()

    async def shut(self) -> None:
        await self.using.close()

    async def give_up(self) -> None:
        await self.using.invalidate()

    def _block(self) -> Any:
        return self.using.begin_nested()

    async def close(self) -> None:
        await self.using.close()
        await self._engine.dispose()


class AsyncSqlalchemyConnection(_AsyncSqlalchemy):
    async def open(self) -> None:
        self._engine = self._engine_of(self.url)
        self.using = AsyncConnection(self._engine)
        await self.using.start()


class AsyncSqlalchemySession(_AsyncSqlalchemy):
    async def open(self) -> None:
        self._engine = self._engine_of(self.url)
        self.using = AsyncSession(self._engine)


class SqlalchemyConnectionOverAsyncpg(AsyncSqlalchemyConnection):
    driver = "asyncpg"


class SqlalchemySessionOverAsyncpg(AsyncSqlalchemySession):
    driver = "asyncpg"


class SqlalchemyConnectionOverAsyncPsycopg(AsyncSqlalchemyConnection):
    driver = "psycopg"


class SqlalchemySessionOverAsyncPsycopg(AsyncSqlalchemySession):
    driver = "psycopg"


def django_alias(url: str) -> str:
    """Return the name under which Django knows a database; it is added when it is first asked for."""
    known = conninfo_to_dict(url)
    return add_database(
        url,
        ENGINE="django.db.backends.postgresql",
        NAME=str(known["dbname"]),
        USER=str(known.get("user", "")),
        PASSWORD=str(known.get("password", "")),
        HOST=str(known.get("host", "")),
        PORT=str(known.get("port", "")),
    )


class DjangoConnection(_Blocking):
    async def open(self) -> None:
        self._alias = django_alias(self.url)
        self.using = await self.run(lambda: connections[self._alias])

    async def begin(self) -> None:
        self._atomic = transaction.atomic(using=self._alias)
        await self.run(self._atomic.__enter__)

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        def run() -> list[tuple[Any, ...]]:
            with self.using.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []

        return await self.run(run)

    async def commit(self) -> None:
        await self.run(lambda: self._atomic.__exit__(None, None, None))

    async def rollback(self) -> None:
        def run() -> None:
            transaction.set_rollback(True, using=self._alias)
            self._atomic.__exit__(None, None, None)

        await self.run(run)

    async def shut(self) -> None:
        await self.run(self.using.connection.close)

    async def give_up(self) -> None:
        await self.run(self.using.close)

    def _block(self) -> Any:
        return transaction.atomic(using=self._alias)

    def _close(self) -> None:
        if self.using.in_atomic_block:
            transaction.set_rollback(True, using=self._alias)
            self._atomic.__exit__(None, None, None)
        self.using.close()


KINDS: list[type[Caller]] = [
    PsycopgConnection,
    PsycopgCursor,
    AsyncPsycopgConnection,
    AsyncPsycopgCursor,
    AsyncpgConnection,
    AsyncpgPool,
    SqlalchemyConnection,
    SqlalchemySession,
    SqlalchemyConnectionOverAsyncPsycopg,
    SqlalchemySessionOverAsyncPsycopg,
    SqlalchemyConnectionOverAsyncpg,
    SqlalchemySessionOverAsyncpg,
    DjangoConnection,
]


@asynccontextmanager
async def calling(kind: type[Caller], url: str) -> AsyncIterator[Caller]:
    """Give a connection of a kind, with no transaction begun."""
    caller = kind(url)
    await caller.open()
    try:
        yield caller
    finally:
        await caller.close()
