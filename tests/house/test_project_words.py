from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import ROOT, Finding, Module, modules, report, sql_files

if TYPE_CHECKING:
    from collections.abc import Iterator

# One word per concept: the synonym that other systems use -> our word.
SYNONYMS = {
    "dequeue": "claim",
    "fencing_token": "fence",
    "lease_token": "fence",
    "renew": "extend",
    "visibility_timeout": "lease",
}


def identifiers(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every name that the module gives or uses, with its line."""
    for node in ast.walk(module.tree):
        match node:
            case (
                ast.Name(id=name, lineno=line) | ast.Attribute(attr=name, lineno=line) | ast.arg(arg=name, lineno=line)
            ):
                yield line, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.keyword(arg=str(name), lineno=line):
                yield line, name
            case ast.alias(name=name, lineno=line):
                yield line, name


def synonym_in(identifier: str) -> str | None:
    """Return the forbidden synonym inside an identifier, whether snake_case or CamelCase."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().replace(".", "_")
    for synonym in SYNONYMS:
        if re.search(rf"(^|_){synonym}(s|d|ed|al|ing)?(_|$)", snake):
            return synonym
    return None


def test_python_names_use_our_words():
    findings = [
        Finding(module.path, line, f"{name}: we say {SYNONYMS[synonym]!r}")
        for module in modules("src")
        for line, name in identifiers(module)
        if (synonym := synonym_in(name))
    ]

    assert not findings, report(findings)


def test_sql_names_use_our_words():
    findings = [
        Finding(file.relative_to(ROOT).as_posix(), number, f"{name}: we say {SYNONYMS[synonym]!r}")
        for file in sql_files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        for name in re.findall(r"[A-Za-z_]\w*", line.partition("--")[0])
        if (synonym := synonym_in(name))
    ]

    assert not findings, report(findings)


@pytest.mark.parametrize("text", ["renew", "renew_all", "LeaseRenewal", "job_dequeued", "fencing_token", "dequeues"])
def test_a_synonym_is_seen_inside_a_longer_name(text):
    assert synonym_in(text)


@pytest.mark.parametrize("text", ["extend", "fence", "renown", "lease", "enqueue", "token"])
def test_our_own_words_pass(text):
    assert synonym_in(text) is None
