"""The prose of the sources is English as engineers write it, without phrases translated from another language."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import ROOT, Finding, Module, modules, report
from tests.house.test_project_words import other_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

# What translated English says -> what to write instead. A blank stands for any white space.
FOREIGN = {
    r"pieces? of work": "job",
    r"(?:\d+|all|these|those|many|waiting|several) works": "jobs",
    r"dear": "expensive",
    r"mended": "fixed",
    r"is over": "ends, has ended",
    r"of (?:its|their|your|my) own(?=[.,;:)]|$)": "separate",
    r"tells": "shows, reports, says",
    r"as ever": "as usual",
    r"goes on": "continues",
    r"by a person": "by an operator",
}
# What only pages are searched for: in short comments some of it says what it should.
FOREIGN_IN_PAGES = FOREIGN | {
    r"so many": "this many, the largest number of",
    r"besides": "in addition to",
    r"also if": "even if",
    r"is at it": "is carrying it out",
    r"by way of": "through",
}
_PATTERNS = {
    re.compile(r"\b" + phrase.replace(" ", r"\s+") + r"(?!\w)", re.IGNORECASE): better
    for phrase, better in FOREIGN.items()
}
_COMMENT = re.compile(r"^[ \t]*(?:--|//)", re.MULTILINE)


def foreign_in(text: str) -> list[tuple[int, str]]:
    """Return the phrases inside a text, with the number of lines before each; names in backquotes are not prose."""
    plain = re.sub(r"`[^`\n]*`", "`", text)
    return [
        (plain.count("\n", 0, found.start()), f"write {better!r} for {found.group()!r}")
        for pattern, better in _PATTERNS.items()
        for found in pattern.finditer(plain)
    ]


def passages(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every string literal, docstrings included, and every block of comments, with its first line."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    block: list[str] = []
    begin = 0
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != begin + len(block):
                yield begin, "\n".join(block)
                begin, block = token.start[0], []
            block.append(token.string.lstrip("# "))
    yield begin, "\n".join(block)


def test_python_sources_are_plain_english():
    findings = [
        Finding(module.path, line + below, what)
        for module in modules("src")
        for line, text in passages(module)
        for below, what in foreign_in(text)
    ]

    assert not findings, report(findings)


def test_other_sources_are_plain_english():
    findings = [
        Finding(file.relative_to(ROOT).as_posix(), 1 + below, what)
        for file in other_sources()
        for below, what in foreign_in(
            re.sub(r"^\s*(?:--|//)", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        )
    ]

    assert not findings, report(findings)


@pytest.mark.parametrize(
    "text", ["It goes on.", "until it is over", "in a session of its\nown.", "the log tells", "a row of its own: x"]
)
def test_a_foreign_phrase_is_found(text: str):
    assert foreign_in(text)


@pytest.mark.parametrize("text", ["its own session", "`tells` is a name", "It continues.", "of its own session"])
def test_plain_prose_passes(text: str):
    assert not foreign_in(text)


def test_a_phrase_that_is_wrapped_in_a_comment_is_found_at_its_first_line():
    text = "x = 1\n\n# The transaction is\n# over by then.\n"
    (passage,) = [each for each in passages(Module("src/a.py", text, ast.parse(text))) if each[1]]

    assert [passage[0] + below for below, _ in foreign_in(passage[1])] == [3]
