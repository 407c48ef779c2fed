"""The catalogue of failures and the list of security name tests that exist, and leave no row out."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from tests.house.sources import ROOT

DOCUMENTS = ("docs/internals/failures.md", "docs/internals/security.md")
NAMING = (*DOCUMENTS, "docs/howto/mysql.md")
NUMBERS = [*range(1, 21), *range(21, 33), *range(33, 44), *range(53, 62), *range(62, 73)]
REDIS = [f"r{number}" for number in range(1, 19)]
LATER_NUMBERS = [*range(87, 99)]
STREAMS = [f"s{number}" for number in range(1, 27)]
KAFKA = [f"k{number}" for number in range(1, 26)]
TEST = re.compile(r"`([\w/.]+\.py)::(?:\w+::)?(test_\w+)`")
REASONS = ("no test", "not killed", "only as", "the kill between")


def rows(document: str) -> list[list[str]]:
    """Return the cells of every row of every table in a document, heads left out."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if not is_head(line)]


def is_head(line: str) -> bool:
    return line.startswith(("| # |", "| what must hold |"))


@cache
def functions_of(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def named_tests() -> list[tuple[str, str, str]]:
    return [
        (document, path, name)
        for document in NAMING
        for path, name in TEST.findall((ROOT / document).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("document", NAMING)
def test_every_test_named_in_a_document_exists(document):
    missing = [
        f"{path}::{name}" for where, path, name in named_tests() if where == document and name not in functions_of(path)
    ]

    assert missing == []


def test_every_failure_of_the_catalogue_has_one_row():
    assert [row[0] for row in rows("docs/internals/failures.md")] == [
        *map(str, NUMBERS),
        *REDIS,
        *map(str, LATER_NUMBERS),
        *STREAMS,
        *KAFKA,
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_names_a_test_or_says_that_there_is_none(document):
    bare = [row[0] for row in rows(document) if not TEST.search(row[-1]) and not row[-1].startswith(REASONS)]

    assert bare == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_mention_of_a_test_is_written_so_that_it_is_checked(document):
    text = (ROOT / document).read_text(encoding="utf-8")

    assert len(re.findall(r"\btest_\w+(?!\.py)\b", re.sub(r"[\w/]+\.py", "", text))) == len(TEST.findall(text))


def test_a_test_that_is_not_there_is_missed():
    assert "test_that_nobody_wrote" not in functions_of("tests/house/test_failure_catalogue.py")
    assert functions_of("tests/house/no_such_file.py") == frozenset()
