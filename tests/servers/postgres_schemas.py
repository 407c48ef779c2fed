"""Installed, empty schemas on the tests' PostgreSQL server, used by one test after another.

Installing and dropping the tables takes the server longer than most tests do. A process keeps the schemas that its
tests have used: what a test has written is deleted and its sequences start again, so that the next test finds what an
installation leaves. A schema whose tables were changed, joined by others or filled with many rows is dropped instead.
Tests of the installation itself and of query plans need a new schema: `own_schema`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb
from tests.servers.missing import give_up
from tests.servers.postgres import URL_VARIABLE, NoServerError, drop_schema, new_schema_url, parts_of

from holdfast.app.open import open_backend

_PROCESS = os.getpid()
_MOST_BYTES = 2_000_000
_SHAPE = """
select class.oid, class.relname, class.relkind, class.reloptions, class.relnatts, class.relhastriggers
from pg_class as class where class.relnamespace = %s::regnamespace order by class.oid
"""
_SIZE = "select sum(pg_relation_size(oid)) from unnest(%s::oid[]) as oid"


class InstalledSchema(msgspec.Struct, frozen=True):
    """A schema as its installation left it."""

    url: str
    shape: list[tuple[Any, ...]]
    rows: dict[str, list[Any]]
    """What each table held, where it held anything."""


_unused: list[InstalledSchema] = []


@contextmanager
def clean_schema() -> Iterator[str]:
    """Yield the URL of an installed schema without jobs or events; skips without a server."""
    schema = take_schema()
    try:
        yield schema.url
    finally:
        return_schema(schema)


def take_schema() -> InstalledSchema:
    """Return an installed schema without jobs or events, for `return_schema` afterwards; skips without a server."""
    if _unused:
        return _unused.pop()
    try:
        return _install(new_schema_url())
    except NoServerError as error:
        give_up("PostgreSQL", str(error))


def return_schema(schema: InstalledSchema) -> None:
    """Empty a schema for the next test, or drop it if its tables are no longer those of the installation."""
    try:
        is_emptied = _is_emptied(schema)
    except psycopg.OperationalError:  # a test has ended all sessions of the server, or has left a lock
        _session.cache_clear()
        is_emptied = False
    if is_emptied:
        _unused.append(schema)
    else:
        drop_schema(schema.url)


@atexit.register
def _drop_unused() -> None:
    """Leave nothing on a server that outlives the tests; a process that a test has forked drops nothing."""
    if os.environ.get(URL_VARIABLE) and os.getpid() == _PROCESS:
        for schema in _unused:
            drop_schema(schema.url)


@cache
def _session(server: str) -> psycopg.Connection[Any]:
    """Return the session that empties schemas: one for all of them, for it remembers what it knows of the tables."""
    connection = psycopg.connect(server, autocommit=True)
    atexit.register(connection.close)
    return connection


def _install(url: str) -> InstalledSchema:
    server, name = parts_of(url)
    script = open_backend(url).schema.script()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(script.encode())
        shape = connection.execute(_SHAPE, [name]).fetchall()
        rows = {table: _rows(connection, name, table) for table in _named(shape, "r")}
    return InstalledSchema(url, shape, {table: found for table, found in rows.items() if found})


def _rows(connection: psycopg.Connection[Any], schema: str, table: str) -> list[Any]:
    found = connection.execute(f'select to_jsonb(kept) from "{schema}".{table} as kept'.encode())  # noqa: S608 - our names
    return [row[0] for row in found]


def _is_emptied(schema: InstalledSchema) -> bool:
    server, name = parts_of(schema.url)
    connection = _session(server)
    with connection.transaction():
        if connection.execute("select to_regnamespace(%s)", [name]).fetchone() == (None,):
            return False
        if connection.execute(_SHAPE, [name]).fetchall() != schema.shape:
            return False
        (size,) = connection.execute(_SIZE, [[oid for oid, *_ in schema.shape]]).fetchone() or (0,)
        if size > _MOST_BYTES:
            return False
        deletes = [f'delete from "{name}".{table}' for table in _named(schema.shape, "r")]  # noqa: S608 - our names
        restarts = [f'alter sequence "{name}".{sequence} restart' for sequence in _named(schema.shape, "S")]
        connection.execute(";".join(["set local lock_timeout = '5s'", *deletes, *restarts]).encode())
        for table, rows in schema.rows.items():
            place = f'"{name}".{table}'
            rows_of = f"select * from jsonb_populate_recordset(null::{place}, %s)"  # noqa: S608 - our names
            insert = f"insert into {place} overriding system value {rows_of}"
            connection.execute(insert.encode(), [Jsonb(rows)])
    return True


def _named(shape: list[tuple[Any, ...]], kind: str) -> list[str]:
    return [name for _, name, found, *_ in shape if found == kind]
