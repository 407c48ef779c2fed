"""A run on PostgreSQL drops the schema that it created, and nothing that it did not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from tests.servers.postgres import drop_schema, own_schema, parts_of
from tests.torture.test_target import prepared

from holdfast.torture.target.base import Foreign
from holdfast.torture.target.postgres import PostgresTarget

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


def run_sql(target: PostgresTarget, *statements: str) -> list[tuple[object, ...]]:
    """Run statements, in whose text {schema} is that of the target; return the rows of the last."""
    server, schema = parts_of(target.url)
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            text = statement.replace("{schema}", f'"{schema}"').replace("{name}", schema)
            done = connection.execute(text.encode())
        return done.fetchall() if done.description else []


@pytest.fixture
def target() -> Iterator[PostgresTarget]:
    with own_schema() as url:
        target = PostgresTarget(url)  # another schema than that of the URL
        try:
            yield target
        finally:
            drop_schema(target.url)


def members(target: PostgresTarget) -> object:
    """Return how many things are in the schema."""
    return run_sql(target, "select count(*) from pg_depend where refobjid = '{schema}'::regnamespace")[0][0]


@pytest.mark.parametrize("statement", OBJECTS.values(), ids=OBJECTS)
async def test_whatever_is_put_into_the_schema_of_a_run_is_counted_once_and_survives(target, statement):
    await prepared(target)
    target.require_own()
    run_sql(target, statement)
    before = members(target)

    for refused in (target.require_own, target.create, target.drop):
        with pytest.raises(Foreign, match="holds 1 jobs, tables or other things that are not of a torture run"):
            refused()
    with pytest.raises(Foreign, match="something else depends on it"):
        target.remove()  # as if it had come between the look and the drop

    assert members(target) == before


async def test_a_schema_that_was_there_before_the_run_is_refused_even_if_it_is_empty(target):
    run_sql(target, "create schema {schema}")

    with pytest.raises(Foreign, match="was not created by a torture run"):
        target.create()

    assert target.exists()
    assert members(target) == 0


async def test_a_schema_that_has_lost_its_marker_is_refused(target):
    await prepared(target)
    run_sql(target, "drop table {schema}.torture_made")

    with pytest.raises(Foreign, match="was not created by a torture run"):
        target.drop()

    assert run_sql(target, "select count(*) from {schema}.torture_effect") == [(0,)]


async def test_tables_that_only_share_their_names_with_ours_are_refused(target):
    run_sql(
        target,
        "create schema {schema}",
        "create table {schema}.job (seq bigint)",
        "create table {schema}.queue (queue text)",
        "insert into {schema}.queue values ('holdfast-torture')",
    )

    with pytest.raises(Foreign):
        target.create()

    assert run_sql(target, "select queue from {schema}.queue") == [("holdfast-torture",)]


async def test_what_depends_on_our_tables_elsewhere_is_named_and_nothing_is_dropped(target):
    await prepared(target)
    with own_schema() as url:
        theirs = parts_of(url)[1]
        watching = f'"{theirs}".watching'
        run_sql(target, f'create schema "{theirs}"', f"create view {watching} as table {{schema}}.job")

        with pytest.raises(Foreign, match=r"watching.*drop that, or name another schema"):
            target.drop()

        assert run_sql(target, f"table {watching}") == []
        assert run_sql(target, "select count(*) from {schema}.torture_effect") == [(0,)]


@contextmanager
def database_of_its_own(target: PostgresTarget) -> Iterator[str]:
    """Make a database, for what all schemas of one share."""
    server, schema = parts_of(target.url)
    run_sql(target, "create database {schema}")
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{schema}", query=""))
    finally:
        run_sql(target, "drop database {schema} (force)")


async def test_indexes_that_this_role_may_not_check_are_not_checked_and_no_fault(target):
    with database_of_its_own(target) as url:
        administrators = PostgresTarget(url)
        await prepared(administrators)
        role = f"{parts_of(target.url)[1]}_role"
        run_sql(
            administrators,
            "create extension amcheck",
            f'create role "{role}" login',
            f'grant usage on schema {{schema}} to "{role}"',
            f'grant select on all tables in schema {{schema}} to "{role}"',
        )
        try:
            limited = PostgresTarget(url + f"?user={role}")
            assert limited.leftovers().integrity == ""
            assert "not checked: permission denied" in limited.versions()["indexes"]
        finally:
            run_sql(administrators, f'drop owned by "{role}"', f'drop role "{role}"')
