"""The SQL dialects return the same columns: each common statement is described by a real server, and by SQLite."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import psycopg
import pytest
from psycopg import sql
from tests.house.test_dialects import COMMON
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.statements import Statements
from holdfast.backends.sqlite.schema import MIGRATIONS
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.store.backend import Backend

# Statements whose columns are not read, or only the first: the dialects return what is cheapest.
UNREAD = {"lock_batch", "lock_lease", "lock_share", "next_place"}


def columns_on_sqlite(name: str, connection: sqlite3.Connection) -> list[str]:
    text = STATEMENTS[name]
    parameters: dict[str, object] = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z]\w*)", text))
    parameters |= dict.fromkeys(re.findall(r"json_each\(:(\w+)\)", text), "[]") | {"limit": 1, "kept": 1}
    connection.execute("begin")
    try:
        return [column[0] for column in connection.execute(text, parameters).description or ()]
    except sqlite3.IntegrityError as error:
        if "NOT NULL" in str(error):  # it inserts rows, and returns none
            return []
        raise
    finally:
        connection.rollback()


def columns_on_postgres(name: str, connection: psycopg.Connection, schema: str) -> list[str]:
    text = Statements(schema, None).text(name).decode()
    numbers: dict[str, int] = {}
    numbered = re.sub(
        r"%\((\w+)\)s", lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", text.replace("%%", "%")
    )
    connection.pgconn.prepare(b"", numbered.encode())
    described = connection.pgconn.describe_prepared(b"")
    assert described.status == psycopg.pq.ExecStatus.COMMAND_OK, described.error_message
    found = [described.fname(number) for number in range(described.nfields)]
    return [column.decode() for column in found if column is not None]


@pytest.fixture
def connection(backend: Backend, url: str):
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        connection.execute(sql.SQL("set search_path to {}").format(sql.Identifier(parts_of(url)[1])))
        yield connection


async def test_a_statement_returns_the_same_columns_in_each_dialect(url: str, connection: psycopg.Connection):
    schema = parts_of(url)[1]
    different = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
        for script in MIGRATIONS.values():
            file.executescript(script)
        for name in COMMON:
            columns = columns_on_sqlite(name, file), columns_on_postgres(name, connection, schema)
            if columns[0] != columns[1] and name not in UNREAD:
                different[name] = columns
    assert different == {}
