"""How statements written for psycopg run on asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, parts_of

from holdfast.backends.postgres.statements import TEMPLATES, Statements
from holdfast.backends.postgres.using.asyncpg import arguments, as_psycopg, as_text, numbered
from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, claim, hold_one
from holdfast.testing.stores import open_store


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(parts_of(url)[0])
    yield connection
    await connection.close()


@pytest.fixture
def pooler(url: str, tmp_path: Path) -> Iterator[str]:
    try:
        with pooled(url, tmp_path) as pooled_url:
            yield pooled_url
    except NoServerError as error:
        give_up("PgBouncer", str(error))


def test_parameters_are_numbered_and_those_with_a_type_go_as_text():
    text, places = numbered(b"select %(a)s, %(b)s::bigint[], %(a)s, %(b)s::text, %(a)s::int, 7 %% 2")
    assert text == "select $1, $2::text::bigint[], $1, $2::text::text, $3::text::int, 7 % 2"
    assert arguments(places, {"a": 7, "b": "{1,NULL}"}) == [7, "{1,NULL}", "7"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("{1,2}", "{1,2}"),
        (7, "7"),
        (2.5, "2.5"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_a_value_is_written_as_the_server_reads_it(value: object, text: str | None):
    assert as_text(value) == text


async def test_the_server_can_read_every_statement(backend: Backend, url: str, connection: Any):
    for clock in (None, lambda: 0):
        statements = Statements(parts_of(url)[1], clock)
        for name in TEMPLATES:
            text, _ = numbered(statements.text(name))
            if not text.lstrip().startswith("copy"):
                try:
                    await connection.prepare(text, name="")
                except asyncpg.PostgresError as error:
                    pytest.fail(f"{name}: {error}")


async def test_codecs_that_the_caller_has_set_do_not_matter(backend: Backend, connection: Any):
    def refuse(value: object) -> str:
        raise AssertionError(value)

    for kind in ("uuid", "float8", "json"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=refuse, decoder=refuse)
    held = await hold_one(backend)
    async with connection.transaction():
        verbs = backend.transactions.join(connection)
        assert await verbs.enqueue([a_job()]) == [True]
        assert await verbs.enqueue([a_job(), a_job()]) == [True, True]
        assert await verbs.finish([Finish(held.lease, Completed())]) == [Verdict.DONE]
    assert len(await claim(backend)) == 3


async def test_no_statement_of_ours_stays_in_the_session(backend: Backend, connection: Any):
    held = await hold_one(backend)
    async with connection.transaction():
        verbs = backend.transactions.join(connection)
        await verbs.enqueue([a_job()])
        await verbs.enqueue([a_job(), a_job()])
        await verbs.finish([Finish(held.lease, Completed())])
        kept = await connection.fetch("select statement from pg_prepared_statements")
    assert [row["statement"] for row in kept if "holdfast" in row["statement"] or "job" in row["statement"]] == []


async def test_it_works_through_a_transaction_pooler(pooler: str):
    async with open_store(pooler) as backend:
        connection = await asyncpg.connect(parts_of(pooler)[0], statement_cache_size=0)
        held = await hold_one(backend)
        for commits in (True, False):
            block = connection.transaction()
            await block.start()
            verbs = backend.transactions.join(connection)
            assert await verbs.enqueue([a_job() for _ in range(3)]) == [True] * 3
            assert await verbs.finish([Finish(held.lease, Completed())]) == [Verdict.DONE]
            await (block.commit() if commits else block.rollback())
        await connection.close()
        assert len(await claim(backend)) == 3


async def test_a_pooler_in_between_is_still_the_same_database(backend: Backend, pooler: str):
    with psycopg.connect(parts_of(pooler)[0], prepare_threshold=None) as connection:
        assert await backend.transactions.join(connection).enqueue([a_job()]) == [True]


async def test_the_connections_own_time_limit_is_told_as_an_outage(backend: Backend, url: str):
    job = a_job()
    limited = await asyncpg.connect(parts_of(url)[0], command_timeout=0.2)
    with psycopg.connect(parts_of(url)[0]) as rival:
        await backend.transactions.join(rival).enqueue([job])
        async with limited.transaction():
            with pytest.raises(StoreUnavailable, match="TimeoutError"):
                await backend.transactions.join(limited).enqueue([job])
    await limited.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.DeadlockDetectedError("x"), psycopg.errors.DeadlockDetected),
        (asyncpg.UndefinedTableError("x"), psycopg.errors.UndefinedTable),
        (asyncpg.InterfaceError("another operation is in progress"), psycopg.InterfaceError),
        (asyncpg.InternalClientError("x"), psycopg.OperationalError),
        (ConnectionResetError("x"), psycopg.OperationalError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_told_apart_by_what_the_server_said(error: Exception, expected: type[psycopg.Error]):
    assert type(as_psycopg(error)) is expected
