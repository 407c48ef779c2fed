from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import NamedTuple

import pytest
from tests.house.reserved import STANDARD, STORES
from tests.house.sources import sql_files

PREFIX = "holdfast_"
CONSTRAINTS = {"check", "constraint", "exclude", "foreign", "key", "primary", "unique"}  # "key": an index of MySQL

# Reserved on paper alone: no store that we support objects to them unquoted.
ACCEPTED = {
    "percent": "how far a running job says it is",
    "result": "what a job returned",
}

CREATED = re.compile(
    r"\bcreate\s+(?:or\s+replace\s+)?(?:unique\s+|temp\s+|temporary\s+)?(?:table|index|view|trigger)\s+"
    r"(?:if\s+not\s+exists\s+)?(\w+)",
    re.IGNORECASE,
)
TABLE = re.compile(r"\bcreate\s+table\s+(?:if\s+not\s+exists\s+)?(\w+)\s*\(", re.IGNORECASE)
ADDED_COLUMN = re.compile(
    r"\balter\s+table\s+(\w+)\s+(?:add\s+(?:column\s+)?|rename\s+column\s+\w+\s+to\s+)(\w+)", re.IGNORECASE
)
RENAMED_TABLE = re.compile(r"\balter\s+table\s+\w+\s+rename\s+to\s+(\w+)", re.IGNORECASE)


class Names(NamedTuple):
    """What a script creates: all objects, and the columns as (table, column)."""

    objects: set[str]
    columns: set[tuple[str, str]]


def bare(sql: str) -> str:
    """Return the script without comments and string literals, which may hold any word."""
    return re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", " ", sql, flags=re.DOTALL)


def definitions(sql: str, start: int) -> list[str]:
    """Return the comma-separated parts of the bracket that opens just before `start`."""
    parts, depth, part = [], 1, ""
    for letter in sql[start:]:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            break
        if letter == "," and depth == 1:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [*parts, part]


def names(sql: str) -> Names:
    text = bare(sql)
    columns = {(table, column) for table, column in ADDED_COLUMN.findall(text)}
    for found in TABLE.finditer(text):
        for definition in definitions(text, found.end()):
            first = definition.split(maxsplit=1)[0]
            if first.lower() not in CONSTRAINTS:
                columns.add((found.group(1), first))
    return Names({*CREATED.findall(text), *RENAMED_TABLE.findall(text)}, columns)


def migrations() -> dict[str, Names]:
    return {
        f"{file.parts[-3]}/{file.name}": names(file.read_text(encoding="utf-8"))
        for file in sql_files("migrations/*.sql")
    }


def reserved_by(word: str) -> list[str]:
    lowered = word.lower()
    owners = [store for store, words in STORES.items() if lowered in words]
    if lowered in STANDARD and lowered not in ACCEPTED:
        owners.append("the SQL standard")
    return owners


def test_no_table_or_column_bears_a_reserved_word():
    found = [
        f"{script}: {word} is reserved by {', '.join(owners)}"
        for script, created in migrations().items()
        for word in sorted(created.objects | {column for _, column in created.columns})
        if (owners := reserved_by(word))
    ]

    assert found == []


def test_everything_in_the_schema_is_prefixed():
    found = [
        f"{script}: {name}"
        for script, created in migrations().items()
        for name in sorted(created.objects)
        if not name.startswith(PREFIX)
    ]

    assert found == []


def test_the_names_read_from_the_scripts_are_those_that_sqlite_makes():
    scripts = sql_files("sqlite/migrations/*.sql")
    assert scripts
    read = [names(file.read_text(encoding="utf-8")) for file in scripts]

    with closing(sqlite3.connect(":memory:")) as connection:
        for file in scripts:
            connection.executescript(file.read_text(encoding="utf-8"))
        made = set(
            connection.execute(
                "select m.name, c.name from sqlite_schema m join pragma_table_info(m.name) c where m.type = 'table'"
            )
        )

    assert {table for table, _ in made} <= set().union(*(created.objects for created in read))
    assert {column for _, column in made} <= {column for created in read for _, column in created.columns}


def test_every_accepted_word_is_used_and_is_reserved_by_the_standard_alone():
    columns = {column for created in migrations().values() for _, column in created.columns}

    for word in ACCEPTED:
        assert word in columns
        assert word in STANDARD
        assert not any(word in words for words in STORES.values())


@pytest.mark.parametrize("word", ["key", "rank", "group", "offset", "Order"])
def test_a_reserved_word_is_recognised(word):
    assert reserved_by(word)


def test_columns_are_told_from_constraints():
    created = names(
        """
        create table if not exists holdfast_a (id text primary key, -- key, rank
          note text default 'x, key' check (note in ('a', 'b')), unique (id, note), primary key (id));
        create unique index holdfast_b on holdfast_a (note);
        alter table holdfast_a add column turn integer;
        """
    )

    assert created.objects == {"holdfast_a", "holdfast_b"}
    assert {column for _, column in created.columns} == {"id", "note", "turn"}
