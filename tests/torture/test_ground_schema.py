"""What a run on PostgreSQL counts as somebody else's in its schema, and never drops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from tests.servers.postgres import drop_schema, new_schema_url, own_schema, parts_of

from holdfast import App, ConfigError
from holdfast.torture.run import Foreign, require_alone
from holdfast.torture.streams.postgres_target import PostgresStreamGround
from holdfast.torture.target.postgres import PostgresGround

OBJECTS = {
    "table": "create table {schema}.invoice (number bigint generated always as identity, total numeric)",
    "view": "create view {schema}.overview as select 1 as one",
    "materialized view": "create materialized view {schema}.figures as select 1 as one",
    "sequence": "create sequence {schema}.counter",
    "partitioned table": "create table {schema}.split (at date) partition by range (at)",
    "enum": "create type {schema}.mood as enum ('good', 'bad')",
    "composite type": "create type {schema}.pair as (one integer, two integer)",
    "domain": "create domain {schema}.positive as integer check (value > 0)",
    "function": "create function {schema}.one() returns integer language sql as 'select 1'",
    "collation": "create collation {schema}.plain (locale = 'C')",
}


def run_sql(ground: PostgresGround, *statements: str) -> list[tuple[object, ...]]:
    """Run statements, in whose text {schema} is that of the ground; return the rows of the last."""
    server, schema = parts_of(ground.url)
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            text = statement.replace("{schema}", f'"{schema}"').replace("{name}", schema)
            done = connection.execute(text.encode())
        return done.fetchall() if done.description else []


@contextmanager
def dropped_in_the_end(kind: type[PostgresGround] = PostgresGround) -> Iterator[PostgresGround]:
    with own_schema() as url:
        ground = kind(url)  # in a schema beside that one
        try:
            yield ground
        finally:
            drop_schema(ground.url)


@pytest.fixture
def ground() -> Iterator[PostgresGround]:
    with dropped_in_the_end() as ground:
        yield ground


async def installed(ground: PostgresGround) -> None:
    """Make of a ground what a run makes of it before it begins."""
    ground.wipe()
    async with App(ground.url):
        pass
    ground.prepare()


def exists(ground: PostgresGround) -> bool:
    return run_sql(ground, "select count(*) from pg_namespace where nspname = '{name}'") == [(1,)]


@pytest.mark.parametrize("kind", [PostgresGround, PostgresStreamGround])
async def test_a_schema_that_a_run_has_made_holds_nothing_foreign_and_is_dropped_as_a_whole(kind):
    with dropped_in_the_end(kind) as ground:
        await installed(ground)
        assert ground.foreign() == 0
        require_alone(ground, among_others=False)

        assert kind(ground.url).wipe() == "The schema of the run is gone."

        assert not exists(ground)
        await installed(ground)
        assert "gone" in ground.wipe(), "what follows on it has made it, too"
        assert not exists(ground)


@pytest.mark.parametrize("made", [True, False], ids=["beside a run", "alone"])
@pytest.mark.parametrize("statement", OBJECTS.values(), ids=OBJECTS)
async def test_whatever_somebody_has_put_into_the_schema_is_counted_once_and_survives(ground, statement, made):
    if made:
        await installed(ground)
    else:
        run_sql(ground, "create schema {schema}")
    before = ground.foreign()
    run_sql(ground, statement)

    assert (before, ground.foreign()) == (0, 1)
    with pytest.raises(Foreign, match="not of a torture run"):
        require_alone(ground, among_others=False)
    ground.wipe()

    assert ground.foreign() == 1, "it is still there"


async def test_a_schema_that_was_there_before_the_run_is_never_dropped(ground):
    run_sql(ground, "create schema {schema}")
    await installed(ground)

    assert "nothing else" in ground.wipe()

    assert exists(ground)
    tables = {row[0] for row in run_sql(ground, "select tablename from pg_tables where schemaname = '{name}'")}
    assert "job" in tables
    assert not any(str(name).startswith("torture") for name in tables)


async def test_a_schema_without_the_mark_of_a_run_is_cleared_and_not_dropped(ground):
    await installed(ground)
    run_sql(ground, "drop table {schema}.torture_made")

    assert "nothing else" in ground.wipe()

    assert exists(ground)


async def test_tables_that_only_share_their_names_with_ours_are_somebody_elses(ground):
    run_sql(
        ground,
        "create schema {schema}",
        "create table {schema}.job (seq bigint)",
        "create table {schema}.queue (queue text)",
        "insert into {schema}.queue values ('holdfast-torture')",
    )

    assert ground.foreign() == 2
    ground.wipe()

    assert run_sql(ground, "select queue from {schema}.queue") == [("holdfast-torture",)]


async def test_what_stands_on_our_tables_elsewhere_is_named_and_nothing_is_dropped(ground):
    await installed(ground)
    outside = PostgresGround(new_schema_url())
    _, theirs = parts_of(outside.url)
    watching = f'"{theirs}".watching'
    run_sql(ground, f'create schema "{theirs}"', f"create view {watching} as table {{schema}}.job")
    try:
        with pytest.raises(ConfigError, match=r"watching.*drop those, or name another schema"):
            ground.wipe()

        assert run_sql(ground, f"table {watching}") == []
        assert run_sql(ground, "select count(*) from {schema}.torture_effect") == [(0,)]
    finally:
        drop_schema(outside.url)


async def test_what_stands_on_the_tables_of_a_run_in_a_schema_of_others_is_named_too(ground):
    run_sql(ground, "create schema {schema}")
    await installed(ground)
    run_sql(ground, "create view {schema}.effects as select * from {schema}.torture_effect")

    with pytest.raises(ConfigError, match="effects"):
        ground.wipe()

    assert run_sql(ground, "select count(*) from {schema}.effects") == [(0,)]


@contextmanager
def database_of_its_own(ground: PostgresGround) -> Iterator[str]:
    """Make a database, for what all schemas of one share."""
    server, schema = parts_of(ground.url)
    run_sql(ground, "create database {schema}")
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{schema}", query=""))
    finally:
        run_sql(ground, "drop database {schema} (force)")


async def test_indexes_that_this_role_may_not_check_are_not_checked_and_no_fault(ground):
    with database_of_its_own(ground) as url:
        administrators = PostgresGround(url)
        await installed(administrators)
        role = f"{parts_of(ground.url)[1]}_role"
        run_sql(
            administrators,
            "create extension amcheck",
            f'create role "{role}" login',
            f'grant usage on schema {{schema}} to "{role}"',
            f'grant select on all tables in schema {{schema}} to "{role}"',
        )
        try:
            limited = PostgresGround(url + f"?user={role}")
            assert limited.leftovers().integrity == ""
            assert "not checked: permission denied" in limited.versions()["indexes"]
        finally:
            run_sql(administrators, f'drop owned by "{role}"', f'drop role "{role}"')
