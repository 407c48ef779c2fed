"""Which stores the suite is bound to. `pytest -k sqlite-memory` runs one of them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.servers import mysql
from tests.servers.kafka import new_prefix
from tests.servers.postgres import parts_of
from tests.servers.postgres_schemas import clean_schema
from tests.servers.redis import connection_of, own_store, with_least_rights

from holdfast.backends.redis.location import RedisLocation
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import EffectTable, MakeBackend, a_job, claim, enqueue
from holdfast.testing.reference import Reference, ReferenceBackend
from holdfast.testing.stores import open_store

STORES = [
    *("reference", "sqlite", "sqlite-memory", "postgres", "mariadb", "valkey"),
    pytest.param("mysql", marks=pytest.mark.slow),
    pytest.param("redis", marks=pytest.mark.slow),
]


# `make test` runs these on MariaDB, and all of `tests/mysql`, which is about what is its own. The others are slow tests
# there, in all folders: it takes most of the shared code from the two other dialects.
QUICK_ON_MARIADB = {"test_append", "test_claim", "test_fencing", "test_unique"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The hook gets the items of all folders.
        is_quick = item.path.stem in QUICK_ON_MARIADB or item.path.parent.name == "mysql"
        if "[mariadb" in item.name and not is_quick:
            item.add_marker(pytest.mark.slow)
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if is_here and "[sqlite-memory" in item.name and item.path.stem not in QUICK_IN_MEMORY:
            item.add_marker(pytest.mark.slow)


# In memory the statements are those of the file; what differs is that all threads share one connection.
QUICK_IN_MEMORY = {"test_concurrency", "test_notify", "test_transactions"}


class SQLiteEffects:
    """A table of effects: in a file through a connection of one's own, in memory through the backend's transactions."""

    def __init__(self, backend: Backend, path: Path | None) -> None:
        self._backend = backend
        self._path = path

    async def create(self) -> None:
        await self._run("create table effect (job_id text not null)")

    async def insert(self, connection, job_id: str) -> None:
        await connection.execute("insert into effect (job_id) values (?)", (job_id,))

    def insert_blocking(self, connection, job_id: str) -> None:
        connection.execute("insert into effect (job_id) values (?)", (job_id,))

    async def count(self, job_id: str) -> int:
        rows = await self._run("select count(*) from effect where job_id = ?", job_id)
        return int(rows[0][0])

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        assert self._path is not None
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.execute("begin immediate")
            yield connection
        finally:
            connection.close()

    async def _run(self, sql: str, *parameters: str) -> list[tuple[int]]:
        if self._path is not None:
            connection = sqlite3.connect(self._path)
            try:
                with connection:
                    return connection.execute(sql, parameters).fetchall()
            finally:
                connection.close()
        return await _run_in_a_transaction(self._backend, sql, parameters)


class PostgresEffects:
    """A table of effects in the schema of the test."""

    def __init__(self, url: str) -> None:
        self._server, schema = parts_of(url)
        table = sql.Identifier(schema, "effect")
        self._create = sql.SQL("create table {} (job_id text not null)").format(table)
        self._insert = sql.SQL("insert into {} (job_id) values (%s)").format(table)
        self._count = sql.SQL("select count(*) from {} where job_id = %s").format(table)

    async def create(self) -> None:
        with psycopg.connect(self._server) as connection:
            connection.execute(self._create)

    async def insert(self, connection, job_id: str) -> None:
        await connection.execute(self._insert, (job_id,))

    def insert_blocking(self, connection, job_id: str) -> None:
        connection.execute(self._insert, (job_id,))

    async def count(self, job_id: str) -> int:
        with psycopg.connect(self._server) as connection:
            row = connection.execute(self._count, (job_id,)).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute("begin")
            yield connection


class MysqlEffects:
    """A table of effects in the database of the test."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def create(self) -> None:
        mysql.run(self._url, "create table effect (job_id varchar(36) not null) engine = innodb")

    async def insert(self, connection, job_id: str) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("insert into effect (job_id) values (%s)", (job_id,))

    def insert_blocking(self, connection, job_id: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("insert into effect (job_id) values (%s)", (job_id,))

    async def count(self, job_id: str) -> int:
        ((number,),) = mysql.run(self._url, f"select count(*) from effect where job_id = '{job_id}'")  # noqa: S608
        return int(number)

    @contextmanager
    def connect(self) -> Iterator[object]:
        connection = mysql.connect(self._url)
        try:
            connection.begin()
            yield connection
        finally:
            connection.close()


class RedisEffects:
    """A list of effects, in the hash slot of the store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._key = RedisLocation.parse(url).prefix.replace("}:", "}/") + "effects"

    async def create(self) -> None:
        """Do nothing: the first effect creates the list."""

    async def insert(self, connection, job_id: str) -> None:
        connection.queue("RPUSH", connection.key("effects"), job_id)

    def insert_blocking(self, connection, job_id: str) -> None:
        connection.queue("RPUSH", connection.key("effects"), job_id)

    async def count(self, job_id: str) -> int:
        return connection_of(self._url).lrange(self._key, 0, -1).count(job_id.encode())

    def connect(self) -> AbstractContextManager[object]:
        raise NotImplementedError  # MULTI is not joined


async def _run_in_a_transaction(backend: Backend, sql: str, parameters: tuple[str, ...]) -> list[tuple[int]]:
    """In memory there is no other way in: run the statement in the transaction of a job made for it."""
    await enqueue(backend, a_job("effects", task="effects"))
    (job,) = await claim(backend, tasks=["effects"])
    async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
        rows: list[tuple[int]] = (await transaction.connection.execute(sql, parameters)).fetchall()
        await transaction.complete(job.lease, None)
    return rows


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(store: str, tmp_path: Path) -> Path | None:
    return tmp_path / "jobs.db" if store in {"sqlite", "sqlite+kafka"} else None


@pytest.fixture
def url(store: str, path: Path | None) -> Iterator[str]:
    match store.partition("+")[0]:
        case "postgres":
            with clean_schema() as url:
                yield url
        case "valkey":
            with own_store("valkey") as url:
                yield url
        case "redis":
            with own_store("redis") as url:
                yield with_least_rights(url)
        case "mariadb" | "mysql" as flavour:
            with mysql.clean_database(flavour) as url:
                yield url
        case _:
            # No test here crashes the machine, and syncing would take most of the time.
            yield "sqlite://" if path is None else f"sqlite:///{path}?synchronous=normal"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def events(store: str) -> str | None:
    """The URL of Kafka, where the store has it next to it."""
    return new_prefix() if store.endswith("+kafka") else None


@pytest.fixture
def make_backend(store: str, url: str, clock: ManualClock, stack: AsyncExitStack, events: str | None) -> MakeBackend:
    async def make() -> Backend:
        if store == "reference":
            return ReferenceBackend(Reference(clock))
        return await stack.enter_async_context(open_store(url, clock=clock, events=events))

    return make


@pytest.fixture
async def backend(make_backend: MakeBackend) -> Backend:
    return await make_backend()


@pytest.fixture
def effects(store: str, backend: Backend, path: Path | None, url: str) -> EffectTable:
    if store in {"mariadb", "mysql", "mariadb+kafka"}:
        return MysqlEffects(url)
    if store in {"valkey", "redis"}:
        return RedisEffects(url)
    return PostgresEffects(url) if store.startswith("postgres") else SQLiteEffects(backend, path)
