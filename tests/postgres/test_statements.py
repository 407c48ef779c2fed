"""An audit of PostgreSQL's statements; `tests/house/test_statements.py` has what holds for every store."""

from __future__ import annotations

import re

from holdfast.backends.postgres.statements import TEMPLATES


def test_no_statement_changes_a_fence():
    changed = re.compile(r"update \{schema\}\.running\s+set\b(.*?)\bwhere\b", re.DOTALL)
    for name, text in TEMPLATES.items():
        assert not any("fence" in columns for columns in changed.findall(text)), name
    assert changed.search(TEMPLATES["extend_one"])


def test_only_known_places_are_filled_in():
    places = {place for text in TEMPLATES.values() for place in re.findall(r"\{(\w+)\}", text)}
    assert places <= {"schema", "schema_name", "now", "minute", "lowest", "priority_step"}
