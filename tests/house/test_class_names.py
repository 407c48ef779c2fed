"""A class name means one thing: no two top-level classes in `src` share it, not even as `Name` and `_Name`."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.house.sources import Finding, modules, report


def definitions() -> dict[str, list[Finding]]:
    """Return, for each name of a top-level class in `src`, without its underscore, where such a class is defined."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for module in modules("src"):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(Finding(module.path, node.lineno, f"class {node.name}"))
    return found


def duplicates() -> dict[str, list[Finding]]:
    """Return the definitions of every class name that is used more than once."""
    return {name: places for name, places in definitions().items() if len(places) > 1}


def test_a_class_name_is_used_once():
    findings = [place for places in duplicates().values() for place in places]

    assert not findings, report(findings)
