"""`using=`: what cannot be joined is refused, with words that name the remedy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import connection as django_proxy
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tests.postgres.callers import django_alias
from tests.servers.postgres import OwnServer, parts_of

from holdfast.errors import ConfigError, StoreError
from holdfast.store.backend import Backend
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import a_job, hold_one
from holdfast.testing.stores import open_store


def _server(url: str) -> str:
    return parts_of(url)[0]


def _engine_url(url: str, driver: str) -> str:
    return _server(url).replace("postgresql:", f"postgresql+{driver}:")


@pytest.mark.parametrize("using", ["shop", 7, object(), {"connection": 1}], ids=lambda using: type(using).__name__)
async def test_what_is_no_connection_is_refused_with_the_kinds_that_are(backend: Backend, using: object):
    job = await hold_one(backend)
    kinds = "psycopg connection or cursor .*asyncpg connection, a SQLAlchemy Session or Connection .*Django connection"
    with pytest.raises(ConfigError, match=f"using= must be a {kinds}; not {type(using).__name__}"):
        backend.transactions.join(using)
    with pytest.raises(ConfigError, match=kinds):
        backend.transactions.complete(job.lease, None, using=using)


async def test_an_engine_or_a_pool_is_no_connection(backend: Backend, url: str):
    engine = sqlalchemy.create_engine(_engine_url(url, "psycopg"))
    pool = await asyncpg.create_pool(_server(url), min_size=0)
    for using in (engine, pool):
        with pytest.raises(ConfigError, match=f"not .*{type(using).__name__}"):
            backend.transactions.join(using)
    await pool.close()


async def test_psycopg_in_autocommit_is_refused_unless_a_block_is_open(backend: Backend, url: str):
    with psycopg.connect(_server(url), autocommit=True) as connection:
        with pytest.raises(ConfigError, match=r"not in a transaction: open `with connection\.transaction\(\):` first"):
            backend.transactions.join(connection)
        with connection.transaction():
            assert await backend.transactions.join(connection).enqueue([a_job()]) == [True]


async def test_asyncpg_outside_a_block_is_refused(backend: Backend, url: str):
    connection = await asyncpg.connect(_server(url))
    with pytest.raises(
        ConfigError, match=r"not in a transaction: open `async with connection\.transaction\(\):` first"
    ):
        backend.transactions.join(connection)
    await connection.close()


async def test_a_block_of_asyncpg_that_has_ended_is_no_transaction_any_more(backend: Backend, url: str):
    connection = await asyncpg.connect(_server(url))
    async with connection.transaction():
        verbs = backend.transactions.join(connection)
    with pytest.raises(ConfigError, match="not in a transaction"):
        await verbs.enqueue([a_job()])
    await connection.close()


async def test_an_asyncpg_connection_of_another_event_loop_is_refused(backend: Backend, url: str):
    connection = await asyncpg.connect(_server(url))

    async def elsewhere() -> None:
        backend.transactions.join(connection)

    async with connection.transaction():
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
    await connection.close()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy_in_autocommit_is_refused(backend: Backend, url: str, driver: str):
    engine = create_async_engine(_engine_url(url, driver), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session:
        with pytest.raises(ConfigError, match="not in a transaction"):
            await backend.transactions.join(session).enqueue([a_job()])
    await engine.dispose()


async def test_blocking_sqlalchemy_in_autocommit_is_refused(backend: Backend, url: str):
    engine = sqlalchemy.create_engine(_engine_url(url, "psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        with pytest.raises(ConfigError, match="not in a transaction"):
            await backend.transactions.join(connection).enqueue([a_job()])
        assert not connection.in_transaction()
    engine.dispose()


async def test_sqlalchemy_over_another_driver_is_refused_by_its_name(backend: Backend):
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(ConfigError, match=r"uses sqlite\+pysqlite.*postgresql\+psycopg"),
    ):
        backend.transactions.join(connection)
    engine.dispose()


async def test_a_session_without_an_engine_is_refused(backend: Backend):
    with Session() as session, pytest.raises(ConfigError, match="Session given as using= cannot be used"):
        backend.transactions.join(session)


async def test_the_session_inside_an_async_one_is_refused(backend: Backend, url: str):
    engine = create_async_engine(_engine_url(url, "asyncpg"))
    async with AsyncSession(engine) as session:
        with pytest.raises(ConfigError, match="pass that AsyncSession"):
            backend.transactions.join(session.sync_session)
    await engine.dispose()


async def test_a_scoped_session_is_refused_since_it_differs_between_threads(backend: Backend, url: str):
    engine = sqlalchemy.create_engine(_engine_url(url, "psycopg"))
    scoped = scoped_session(sessionmaker(engine))
    async_engine = create_async_engine(_engine_url(url, "psycopg"))
    async_scoped: Any = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: 1)
    for using in (scoped, async_scoped):
        with pytest.raises(ConfigError, match=r"pass the session itself, `using=session\(\)`"):
            backend.transactions.join(using)
    assert await backend.transactions.join(scoped()).enqueue([a_job()]) == [True]
    scoped.remove()
    engine.dispose()
    await async_engine.dispose()


async def test_a_sqlalchemy_session_that_must_be_rolled_back_says_so(backend: Backend, url: str):
    engine = sqlalchemy.create_engine(_engine_url(url, "psycopg"))
    with Session(engine) as session:
        session.execute(sqlalchemy.text("select 1"))
        session.connection().invalidate()
        with pytest.raises(ConfigError, match=r"until .*rolled back"):
            await backend.transactions.join(session).enqueue([a_job()])
        session.rollback()
        assert await backend.transactions.join(session).enqueue([a_job()]) == [True]
    engine.dispose()


async def test_a_server_that_sqlalchemy_does_not_reach_is_told_as_an_outage(backend: Backend, url: str):
    engine = sqlalchemy.create_engine("postgresql+psycopg://nobody@127.0.0.1:9/none")
    with Session(engine) as session, pytest.raises(StoreError, match="Session given as using="):
        await backend.transactions.join(session).enqueue([a_job()])
    engine.dispose()


async def test_django_outside_an_atomic_block_is_refused(backend: Backend, url: str):
    alias = django_alias(_server(url))

    def run() -> None:
        try:
            with pytest.raises(ConfigError, match=r"not in a transaction: open `with transaction\.atomic\(\):` first"):
                backend.transactions.join(connections[alias])
        finally:
            connections[alias].close()

    await asyncio.to_thread(run)


async def test_djangos_stand_in_for_a_connection_is_refused_since_it_differs_between_threads(backend: Backend):
    with pytest.raises(ConfigError, match=r"pass the connection itself, `using=connections\[\"default\"\]`"):
        backend.transactions.join(django_proxy)


async def test_django_on_another_kind_of_database_is_refused(backend: Backend, url: str):
    django_alias(_server(url))

    def run() -> None:
        try:
            with transaction.atomic(), pytest.raises(ConfigError, match="leads to sqlite, not to PostgreSQL"):
                backend.transactions.join(connections["default"])
        finally:
            connections["default"].close()

    await asyncio.to_thread(run)


async def test_a_django_block_that_must_be_rolled_back_is_refused(backend: Backend, url: str):
    alias = django_alias(_server(url))

    def run() -> None:
        try:
            with transaction.atomic(using=alias):
                connections[alias].cursor().execute("select 1")
                transaction.set_rollback(True, using=alias)
                with pytest.raises(ConfigError, match="already failed"):
                    backend.transactions.join(connections[alias])
        finally:
            connections[alias].close()

    await asyncio.to_thread(run)


async def test_a_database_of_the_same_name_on_another_server_is_refused(backend: Backend, url: str, server: OwnServer):
    held, name = await hold_one(backend), _server(url).rpartition("/")[2]
    assert server.url.endswith(f"/{name}")
    with psycopg.connect(server.url) as connection:
        with pytest.raises(ConfigError, match=f"the database '{name}' of a different server"):
            await backend.transactions.join(connection).enqueue([a_job()])
        with pytest.raises(ConfigError, match="a different server"):
            backend.transactions.complete(held.lease, None, using=connection)


async def test_a_server_that_was_started_again_is_still_the_same(server: OwnServer):
    async with open_store(f"{server.url}?schema=holdfast") as backend:
        for _ in range(2):
            held = await hold_one(backend)
            with psycopg.connect(server.url) as connection:
                assert backend.transactions.complete(held.lease, None, using=connection) is Verdict.DONE
            server.stop()
            server.start()


async def test_a_connection_without_the_rights_is_told_what_it_lacks(backend: Backend, url: str):
    schema = parts_of(url)[1]
    with psycopg.connect(_server(url)) as connection:
        connection.execute(f"create role {schema}_poor".encode())
        connection.execute(f"set local role {schema}_poor".encode())
        with pytest.raises(StoreError, match=f"permission denied for schema {schema}"):
            await backend.transactions.join(connection).enqueue([a_job()])
        connection.rollback()


async def test_a_lane_that_is_first_named_in_an_open_transaction_stops_nobody_else(backend: Backend, url: str):
    with psycopg.connect(_server(url)) as connection:
        await backend.transactions.join(connection).enqueue([a_job("brand-new")])
        assert await backend.jobs.enqueue([a_job("brand-new")]) == [True]


async def test_a_cancelled_call_leaves_nothing_running_on_the_callers_connection(backend: Backend, url: str):
    job = a_job()
    with psycopg.connect(_server(url)) as rival, psycopg.connect(_server(url)) as connection:
        await backend.transactions.join(rival).enqueue([job])
        connection.execute("set local lock_timeout = '300ms'")
        call = asyncio.create_task(backend.transactions.join(connection).enqueue([job]))
        ask = "select count(*) from pg_locks where not granted and pid = %s"
        with psycopg.connect(_server(url), autocommit=True) as watcher:
            while watcher.execute(ask, (connection.info.backend_pid,)).fetchone() == (0,):  # noqa: ASYNC110 - the server
                await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR  # it is over, not at work
        connection.rollback()


def test_no_library_of_callers_is_loaded_by_the_backend():
    code = (
        "import sys, holdfast.backends.postgres.backend\n"
        "print(sorted({'asyncpg', 'django', 'sqlalchemy'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
