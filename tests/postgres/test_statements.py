"""An audit of the statements: what writes under a lease carries the fence, and none is dead or missing."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.backends import postgres
from holdfast.backends.postgres.statements import TEMPLATES

SOURCES = Path(postgres.__file__).parent

# Statements that change `running` without a fence in them, and what makes it safe.
UNFENCED = {
    "leave_running": "of rows that the same transaction has locked, by their fence or to take the lease away",
    "isolate_no_more": "says only whom a later loss is blamed on; the holder keeps it",
    "ask_to_cancel": "asked by a person, under no lease; the holder keeps it",
}
CHANGES = re.compile(r"\b(update|delete\s+from)\s+\{schema\}\.running\b")
FENCE = re.compile(r"\bfence = (given\.fence|%\(fence\)s)")


def test_a_statement_that_changes_running_carries_the_fence_or_is_accounted_for():
    unfenced = {name for name, text in TEMPLATES.items() if CHANGES.search(text) and not FENCE.search(text)}
    assert unfenced == set(UNFENCED)


def test_no_statement_changes_a_fence():
    changed = re.compile(r"update \{schema\}\.running\s+set\b(.*?)\bwhere\b", re.DOTALL)
    for name, text in TEMPLATES.items():
        assert not any("fence" in columns for columns in changed.findall(text)), name
    assert changed.search(TEMPLATES["extend_one"])


def test_every_statement_is_used_and_every_one_that_is_used_exists():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    states = ("ready", "scheduled", "blocked", "running", "completed", "failed", "cancelled")
    for kind in ("list", "old", "prune"):
        code += "".join(f'"{kind}_{state}"' for state in states if f'f"{kind}_{{' in code)
    named = set(re.findall(r'"([a-z_]+)"', code))
    assert set(TEMPLATES) - named == set()
    asked = set(re.findall(r'(?:rows|row|run|value|load|partial\(rows,)\(?\s*"([a-z_]+)"', code))
    assert asked - set(TEMPLATES) == set()


def test_only_known_places_are_filled_in():
    places = {place for text in TEMPLATES.values() for place in re.findall(r"\{(\w+)\}", text)}
    assert places <= {"schema", "now", "minute", "lowest", "priority_step"}
