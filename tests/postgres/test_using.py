"""`using=`: the caller's own transaction, whatever library opened it."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.servers.postgres import parts_of

from holdfast.errors import ConfigError, JobNotFound, Unsupported
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.conformance.base import a_job, hold_one, state_of


def _server(url: str) -> str:
    return parts_of(url)[0]


def _engine_url(url: str) -> str:
    return _server(url).replace("postgresql://", "postgresql+psycopg://")


async def _is_there(backend: Backend, job_id: str) -> bool:
    try:
        await state_of(backend, job_id)
    except JobNotFound:
        return False
    return True


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_goes_with_a_psycopg_connection_or_cursor(backend: Backend, url: str, commits: bool):
    for kind in ("connection", "cursor"):
        job = a_job()
        with psycopg.connect(_server(url)) as connection:
            using = connection if kind == "connection" else connection.cursor()
            assert await backend.transactions.join(using).enqueue([job]) == [True]
            assert not await _is_there(backend, job.id)
            (connection.commit if commits else connection.rollback)()
        assert await _is_there(backend, job.id) is commits


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_and_a_completion_go_with_an_async_psycopg_connection(backend: Backend, url: str, commits: bool):
    job, held = a_job(), await hold_one(backend)
    connection = await psycopg.AsyncConnection.connect(_server(url))
    async with connection:
        verbs = backend.transactions.join(connection)
        assert await verbs.enqueue([job]) == [True]
        assert await verbs.finish([Finish(held.lease, Completed())]) == [Verdict.DONE]
        with pytest.raises(Unsupported, match="await"):
            backend.transactions.complete(held.lease, None, using=connection.cursor())
        await (connection.commit if commits else connection.rollback)()
    assert await _is_there(backend, job.id) is commits
    assert await backend.jobs.verify(held.lease) is (Standing.COMPLETED if commits else Standing.HELD)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_and_a_completion_go_with_a_sqlalchemy_session(backend: Backend, url: str, commits: bool):
    job, held = a_job(), await hold_one(backend)
    engine = sqlalchemy.create_engine(_engine_url(url))
    with Session(engine) as session:
        await backend.transactions.join(session).enqueue([job])
        assert backend.transactions.complete(held.lease, None, using=session.connection()) is Verdict.DONE
        (session.commit if commits else session.rollback)()
    engine.dispose()
    assert await _is_there(backend, job.id) is commits
    assert await backend.jobs.verify(held.lease) is (Standing.COMPLETED if commits else Standing.HELD)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_goes_with_an_async_sqlalchemy_session(backend: Backend, url: str, commits: bool):
    job = a_job()
    engine = create_async_engine(_engine_url(url))
    async with AsyncSession(engine) as session:
        assert await backend.transactions.join(session).enqueue([job]) == [True]
        await (session.commit if commits else session.rollback)()
    await engine.dispose()
    assert await _is_there(backend, job.id) is commits


async def test_a_connection_over_another_driver_is_refused_by_name(backend: Backend):
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(ConfigError, match="over sqlite3"):
        backend.transactions.join(connection)
    engine.dispose()


async def test_a_connection_to_another_database_is_refused(backend: Backend, url: str):
    elsewhere = _server(url).rpartition("/")[0] + "/template1"
    with psycopg.connect(elsewhere) as connection, pytest.raises(ConfigError, match="template1"):
        backend.transactions.join(connection)


async def test_a_lane_that_is_first_named_in_an_open_transaction_stops_nobody_else(backend: Backend, url: str):
    with psycopg.connect(_server(url)) as connection:
        await backend.transactions.join(connection).enqueue([a_job("brand-new")])
        assert await backend.jobs.enqueue([a_job("brand-new")]) == [True]
