"""The pages use the terms of the glossary, and plain English."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.docs.test_documentation import ROOT
from tests.house.test_plain_prose import FOREIGN_IN_PAGES
from tests.house.test_project_words import DIALECT, DOUBLES, phrase

FOLDERS = (
    "docs/tutorial",
    "docs/howto",
    "docs/explanation",
    "docs/internals",
    "docs/reference",
    "examples",
    "examples/*",
)
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md") if page.name != "glossary.md"),
]

ABOUT_OTHERS = ("docs/howto/from-celery.md", "docs/explanation/other-queues.md")  # use the terms of other queues, too
FROM_SOURCES = ("docs/reference/http.md",)  # its table repeats the first lines of the routes' docstrings


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page on one line each, without code and without names in backquotes."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", re.sub(r"`[^`]*`", "`", text))]


def findings(text: str, *, allowed: Iterable[str] = ()) -> list[str]:
    """Return the words that the pages do not use, with what to write instead and some words around them."""
    words = {word: better for word, better in {**DOUBLES, **DIALECT, **FOREIGN_IN_PAGES}.items() if word not in allowed}
    return [
        f"write {better!r}: {paragraph[max(0, found.start() - 40) : found.end() + 40]}"
        for paragraph in paragraphs(text)
        for word, better in words.items()
        for found in re.finditer(rf"\b{phrase(word)}(?!\w)", paragraph, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_plain_words(page: Path):
    name = page.relative_to(ROOT).as_posix()
    allowed = DOUBLES if name in ABOUT_OTHERS else ["besides"] if name in FROM_SOURCES else ()
    assert findings(page.read_text(encoding="utf-8"), allowed=allowed) == []


@pytest.mark.parametrize(
    "text",
    [
        "Nobody extends it.",
        "100,000 works are done",
        "a connection of its own",
        "It goes on.",
        "the log tells",
        "at most so many jobs",
        "It gives the job back.",
    ],
)
def test_a_foreign_word_is_found(text: str):
    assert findings(text)


@pytest.mark.parametrize("text", ["That works.", "A cursor works too.", "`tells` is a name", "```\nnobody\n```"])
def test_plain_text_passes(text: str):
    assert not findings(text)
