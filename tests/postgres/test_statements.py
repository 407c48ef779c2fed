"""An audit of PostgreSQL's statements; `tests/house/test_statements.py` has what holds for every store."""

from __future__ import annotations

import re

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.statements import TEMPLATES, Statements
from holdfast.backends.sql.steps import Numbers

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def test_no_statement_changes_a_fence():
    changed = re.compile(r"update \{schema\}\.running\s+set\b(.*?)\bwhere\b", re.DOTALL)
    for name, text in TEMPLATES.items():
        assert not any("fence" in columns for columns in changed.findall(text)), name
    assert changed.search(TEMPLATES["extend_one"])


def test_only_known_places_are_filled_in():
    places = {place for text in TEMPLATES.values() for place in re.findall(r"\{(\w+)\}", text)}
    assert places <= {"schema", "schema_name", "now", "minute", "lowest", "priority_step"}


@pytest.mark.parametrize(
    ("values", "type_name"),
    [
        ([], "text[]"),
        (["a", None, 'say "x"', "back\\slash", "", "NULL", " spaced ", "{1,2}", "zwölf\n"], "text[]"),
        ([1, None, -(2**63), 2**63 - 1], "bigint[]"),
        (Numbers([1, 2]), "integer[]"),
        ([0.5, None], "float8[]"),
        ([True, False, None], "boolean[]"),
    ],
)
def test_the_server_reads_a_list_as_it_was_given(url: str, values: list[object], type_name: str):
    bound = Statements("unused", None).parameters({"given": values})

    with psycopg.connect(parts_of(url)[0]) as connection:
        row = connection.execute(f"select %(given)s::{type_name}".encode(), bound).fetchone()

    assert row == (values,)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.none() | TEXT, max_size=6), numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_arrays_come_back_as_they_were_sent(url: str, texts: list[str | None], numbers: list[int | None]):
    bound = Statements("unused", None).parameters({"texts": texts, "numbers": numbers})
    with psycopg.connect(parts_of(url)[0]) as connection:
        row = connection.execute("select %(texts)s::text[], %(numbers)s::bigint[]", bound).fetchone()
    assert row == (texts, numbers)
