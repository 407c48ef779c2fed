"""The statements of this backend, read once: the shared ones in the spelling of SQLite, and its own."""

from __future__ import annotations

import re

from holdfast.backends.sql.files import statements

_ONE_ROW = re.compile(
    r"(cross|left) join lateral \(\s*select [^()]*? from \{schema\}\.(\w+)\s+where ((?:[^()]|\([^()]*\))*?)"
    r"(?: limit 1)?(?: for update)?\s*\) as (\w+)(?: on true)?"
)
_SPELLING = (
    (r"::(?:double precision|\w+)(?:\[\])?", ""),
    (r"= any\((?:array\(select unnest\()?(:\w+)(?:\)\))?\)", r"in (select value from json_each(\1))"),
    (r"\s+for (?:no key update|update|key share|share)(?: skip locked)?(?= *$)", ""),
    (r"(?<!left )(?<!cross )\bjoin\b", "cross join"),  # which the planner does not reorder
    (r"\bgreatest\(", "max("),
    (r"\{schema\}\.", "holdfast_"),
    (r"\{(now|priority_step)\}", r":\1"),
)


def _joined(found: re.Match[str]) -> str:
    kind, table, where, name = found.groups()
    return f"{kind} join holdfast_{table} as {name} on " + re.sub(r"(^|\band )(\w+) =", rf"\1{name}.\2 =", where)


def _spelled(text: str) -> str:
    text = _ONE_ROW.sub(_joined, text)
    for pattern, replacement in _SPELLING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


STATEMENTS = statements("holdfast.backends.sqlite", _spelled)
