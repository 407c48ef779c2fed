"""The `.sql` files of a store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.backends.sql.files import SHARED, migrations, own_statements, statements


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    home = tmp_path / f"store_of_{tmp_path.name}"  # one per test: Python remembers packages by their name
    for folder in ("sql", "migrations"):
        (home / folder).mkdir(parents=True)
    (home / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return home.name


def _write(tmp_path: Path, package: str, name: str, text: str) -> None:
    (tmp_path / package / name).write_text(text, encoding="utf-8")


def test_a_statement_goes_by_its_name_without_what_stands_above_it_and_its_semicolon(tmp_path, package):
    _write(tmp_path, package, "sql/jobs.sql", "-- Jobs.\n\n-- name: one\nselect 1;\n\n-- name: two\nselect\n  2;\n")

    assert own_statements(package) == {"one": "select 1", "two": "select\n  2"}


def test_a_name_given_twice_is_refused_with_the_file_that_gives_it_again(tmp_path, package):
    _write(tmp_path, package, "sql/a.sql", "-- name: one\nselect 1;\n")
    _write(tmp_path, package, "sql/b.sql", "-- name: one\nselect 2;\n")

    with pytest.raises(RuntimeError, match=r"b\.sql defines the statement one again"):
        statements(package, str)


def test_a_store_has_the_shared_statements_in_its_spelling_and_its_own_in_place_of_those_of_the_same_name(
    tmp_path, package
):
    shared = {name: re.sub(r"(?m)^--.*\n", "", text) for name, text in own_statements(SHARED).items()}
    _write(tmp_path, package, "sql/jobs.sql", "-- name: job_view\nselect 1;\n\n-- name: mine\nselect 2;\n")

    expected = {name: text.upper() for name, text in shared.items()} | {"job_view": "select 1", "mine": "select 2"}
    assert statements(package, str.upper) == expected


def test_migrations_come_in_the_order_of_their_numbers_and_nothing_else_comes(tmp_path, package):
    for name in ("0010_later.sql", "0002_next.sql", "0001_initial.sql", "README.md", "draft.sql"):
        _write(tmp_path, package, f"migrations/{name}", name)

    assert list(migrations(package).items()) == [
        (1, "0001_initial.sql"),
        (2, "0002_next.sql"),
        (10, "0010_later.sql"),
    ]


def test_one_text_makes_a_statement_for_each_word_of_its_header(tmp_path, package):
    text = "-- name: drop_{state}s: job, lane\n-- All of them.\ndelete from {schema}.{state};\n"
    _write(tmp_path, package, "sql/jobs.sql", text)

    assert own_statements(package) == {
        "drop_jobs": "-- All of them.\ndelete from {schema}.job",
        "drop_lanes": "-- All of them.\ndelete from {schema}.lane",
    }


def test_a_part_is_put_into_statements_of_every_file_and_is_none_itself(tmp_path, package):
    _write(tmp_path, package, "sql/a.sql", "-- name: one\nselect {columns} from {schema}.job;\n")
    _write(tmp_path, package, "sql/b.sql", "-- part: columns\nid, seq;\n\n-- name: two\nselect {given};\n")

    assert own_statements(package, {"given": "1"}) == {"one": "select id, seq from {schema}.job", "two": "select 1"}


def test_a_store_has_the_shared_parts_in_its_spelling(tmp_path, package):
    _write(tmp_path, package, "sql/jobs.sql", "-- name: mine\nselect {state_of_job};\n")

    assert "WHEN RUNNING.SEQ IS NOT NULL" in statements(package, str.upper)["mine"]
