"""The schema: installed by the first who opens, never into what is older, newer or forbidden."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.app.open import open_backend
from holdfast.backends.postgres.schema import MIGRATIONS
from holdfast.backends.postgres.statements import fill_in
from holdfast.errors import SchemaMismatch
from holdfast.store.values import Retention
from holdfast.testing.conformance.base import a_job, enqueue

pytestmark = pytest.mark.new_schema


async def test_opening_a_database_without_our_schema_installs_it(url: str):
    backend = open_backend(url)
    await backend.open()
    await enqueue(backend, a_job())
    await backend.close()


async def test_with_install_never_the_remedy_is_named(url: str):
    backend = open_backend(f"{url}&install=never")
    with pytest.raises(SchemaMismatch, match="holdfast schema install"):
        await backend.open()
    await backend.close()


async def test_many_may_open_at_once_and_one_installs(url: str):
    backends = [open_backend(url) for _ in range(6)]
    await asyncio.gather(*(backend.open() for backend in backends))
    for backend in backends:
        await backend.schema.check()
        await backend.close()


@pytest.mark.parametrize(("version", "remedy"), [(99, "upgrade the holdfast package"), (0, "schema")])
async def test_tables_of_another_version_are_refused(url: str, version: int, remedy: str):
    backend = open_backend(url)
    await backend.schema.install()
    server, schema = parts_of(url)
    with psycopg.connect(server) as connection:
        query = psycopg.sql.SQL("update {} set schema_version = %s").format(psycopg.sql.Identifier(schema, "meta"))
        connection.execute(query, (version,))
    with pytest.raises(SchemaMismatch, match=remedy):
        await backend.schema.check()
    if version:
        with pytest.raises(SchemaMismatch, match=remedy):
            await backend.schema.install()
    await backend.close()


async def test_the_script_installs_what_install_does(url: str):
    backend = open_backend(url)
    with psycopg.connect(parts_of(url)[0]) as connection:
        connection.execute(backend.schema.script().encode())
    await backend.schema.check()
    await backend.close()


COMPLETED = """
update {s}.meta set schema_version = 2;
insert into {s}.job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes)
select gen_random_uuid(), 1, '[]', 0, 5, 1, 1, 2 from generate_series(1, 5);
insert into {s}.completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, 1, 'w', 1, 1, 1 from {s}.job;
"""


async def test_what_was_completed_before_pruning_went_by_age_is_pruned_after_the_upgrade(url: str):
    server, schema = parts_of(url)
    with psycopg.connect(server) as connection:
        connection.execute(f"create schema {schema}".encode())
        for version in (1, 2):
            connection.execute(fill_in(MIGRATIONS[version], schema).encode())
        connection.execute(COMPLETED.format(s=schema).encode())
    backend = open_backend(url)
    with pytest.raises(SchemaMismatch, match="holdfast schema upgrade"):
        await backend.open()
    await backend.schema.install()
    await backend.open()
    assert [await backend.jobs.prune(Retention(), 2) for _ in range(4)] == [2, 2, 1, 0]
    await backend.close()
