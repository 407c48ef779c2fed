"""The statements that shared verbs run by name are the same in every dialect: their parameters and their columns.

A verb in `backends/sql` knows no dialect, so a statement that one of them lacks, or spells in another way, is an error
that only a user of that store would meet.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest
from tests.house.sources import modules
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.statements import TEMPLATES, Statements
from holdfast.backends.postgres.wire import _numbered
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.store.backend import Backend
from holdfast.testing.stores import open_store

SHARED = "src/holdfast/backends/sql/streams"


def asked() -> set[str]:
    """Return the statements that functions of shared modules name."""
    words = {
        node.value
        for module in modules(SHARED)
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return words & (STATEMENTS.keys() | TEMPLATES.keys())


def without_comments(sql: str) -> str:
    return re.sub(r"--.*", "", sql)


def parameters_of_sqlite(name: str) -> set[str]:
    return set(re.findall(r":(\w+)", without_comments(STATEMENTS[name]))) - {"now"}


def parameters_of_postgres(name: str) -> set[str]:
    return set(re.findall(r"%\((\w+)\)s", without_comments(TEMPLATES[name]))) - {"now"}


def test_every_dialect_has_the_statements_of_the_shared_verbs():
    assert asked()
    assert asked() - STATEMENTS.keys() == set()
    assert asked() - TEMPLATES.keys() == set()


def test_they_take_the_same_parameters():
    taken = {name: (parameters_of_sqlite(name), parameters_of_postgres(name)) for name in asked()}

    assert {name: both for name, both in taken.items() if both[0] != both[1]} == {}


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / "dialect.db"
    async with open_store(f"sqlite:///{path}"):
        return path


async def test_they_return_the_same_columns(backend: Backend, url: str, file: Path):
    schema = parts_of(url)[1]
    with psycopg.connect(parts_of(url)[0]) as postgres, sqlite3.connect(file) as sqlite:
        found = {
            name: (columns_of_sqlite(sqlite, name), columns_of_postgres(postgres, schema, name)) for name in asked()
        }

    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}


def columns_of_sqlite(connection: sqlite3.Connection, name: str) -> list[str]:
    text = without_comments(STATEMENTS[name]).strip()
    if not text.startswith(("select", "with")):
        return []  # what writes returns nothing in any dialect
    cursor = connection.execute(text, dict.fromkeys(re.findall(r":(\w+)", text), 0))
    return [column[0] for column in cursor.description]


def columns_of_postgres(connection: psycopg.Connection, schema: str, name: str) -> list[str]:
    query, _, _ = _numbered(Statements(schema, None).text(name))
    connection.pgconn.prepare(name.encode(), query)
    described = connection.pgconn.describe_prepared(name.encode())
    assert not described.error_message, described.error_message
    return [(described.fname(number) or b"").decode() for number in range(described.nfields)]
