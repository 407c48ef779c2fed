"""A class name means one thing: no two top-level classes in `src` share it."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.house.sources import Finding, modules, report

# Names that are used more than once, mostly twins in the SQLite and the PostgreSQL backend. The list only shrinks.
DUPLICATED = {
    "AttemptEnded",
    "EventRow",
    "HeldLease",
    "JobRow",
    "ReferenceConsumers",
    "ShareRow",
    "_Listed",
    "_Row",
}


def definitions() -> dict[str, list[Finding]]:
    """Return, for each name of a top-level class in `src`, where such a class is defined."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for module in modules("src"):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(Finding(module.path, node.lineno, f"class {node.name}"))
    return found


def duplicates() -> dict[str, list[Finding]]:
    """Return the definitions of every class name that is used more than once."""
    return {name: places for name, places in definitions().items() if len(places) > 1}


def test_a_class_name_is_used_once():
    findings = [place for name, places in duplicates().items() if name not in DUPLICATED for place in places]

    assert not findings, report(findings)


def test_a_name_that_is_used_once_is_no_longer_exempt():
    assert DUPLICATED - duplicates().keys() == set(), "remove them from DUPLICATED"
