"""The statements of this backend: the shared ones in the spelling of MySQL, and its own; and how values are put in.

A statement is text without `?`: our sessions know their SQL mode, so numbers and escaped texts are put in directly, and
several statements travel together. In a caller's session, whose mode is the caller's, texts are bound by the driver.

A list is put in as its elements: `seq in (:seqs)`, or `'[:seqs]'` for a JSON array of numbers. Directly after
`json_table(` a list is put in as the text of a JSON array. A statement may have several parts, separated by `;`: its
answer is that of the last part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.files import statements
from holdfast.backends.sql.steps import Each
from holdfast.model.instants import span_micros
from holdfast.model.turn import PRIORITY_STEP

MINUTE = 60_000_000
# An integer, independent of time zones, and constant within a statement.
SERVER_CLOCK = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
TABLE_OPTIONS = (
    "engine=innodb row_format=dynamic default character set utf8mb4"
    " /*!80017 collate utf8mb4_0900_bin */ /*M!100300 collate utf8mb4_nopad_bin */"
)
_LONGEST_TEXT = 500_000  # characters of one trip: far below the smallest packet that servers accept by default
_IN_ONE = {"insert_new", "insert_jobs"}  # whose rows get numbers that follow one another; their callers divide them

_ONE_ROW = re.compile(
    r"(cross|left) join lateral \(\s*select [^()]*? from \{schema\}\.(\w+)\s+where ((?:[^()]|\([^()]*\))*?)"
    r"(?: limit 1)?\s*\) as (\w+)(?: on true)?"
)
_SPELLING = (
    (r"\b(coalesce\((?:[^()]|\([^()]*\))*\))::bigint", r"cast(\1 as signed)"),  # sums are decimals otherwise
    (r"::(?:double precision|\w+)(?:\[\])?", ""),
    (r"= any\((?:array\(select unnest\()?(:\w+)(?:\)\))?\)", r"in (\1)"),
    (r"\bfor no key update\b", "for update"),
    (r"\bfor (?:key )?share\b", "lock in share mode"),
    (r"\bas materialized \(", "as ("),
    (r"(?<!left )(?<!cross )\bjoin\b", "straight_join"),  # which the planner does not reorder
    (r"\bkeys\b", "key_of"),  # a reserved word
    (r"\bon conflict(?: \([^)]*\))? do update\s+set", "on duplicate key update"),
    (
        r"(?s)(insert into \{schema\}\.(\w+)(?: as \w+)?\s+\((\w+).*?)on conflict(?: \([^)]*\))? do nothing",
        r"\1on duplicate key update \3 = {schema}.\2.\3",
    ),
    (r"\bexcluded\.(\w+)", r"values(\1)"),
    (r"(insert into \{schema\}\.\w+) as \w+", r"\1"),
    (r"\{schema\}\.", "holdfast_"),
)
_PARAMETER = re.compile(r"(json_table\()?(?<![:\w]):([a-z]\w*)")
_VALUES = re.compile(r"(?s)(insert into .*?\bvalues )(\(.*?\))(\s*(?:on duplicate key update\s.*)?)")
_COMMENT = re.compile(r"^--.*\n|\s--\s.*", re.MULTILINE)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\0": "\\0", "\x1a": "\\Z", "\n": "\\n", "\r": "\\r"})


def _joined(found: re.Match[str]) -> str:
    kind, table, where, name = found.groups()
    join = "straight_join" if kind == "cross" else "left join"
    return f"{join} holdfast_{table} as {name} on " + re.sub(r"(^|\band )(\w+) =", rf"\1{name}.\2 =", where)


def _spelled(text: str) -> str:
    text = _ONE_ROW.sub(_joined, text)
    for pattern, replacement in _SPELLING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


TEMPLATES = statements("holdfast.backends.mysql", _spelled)


def quoted(text: str) -> str:
    """Return a text as a literal, for a session with backslash escapes."""
    return f"'{text.translate(_ESCAPES)}'"


def _literal(value: Any, text: Callable[[str], str]) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int | float):
        return repr(value)
    elements: Sequence[Any] = value
    return ",".join([_literal(element, text) for element in elements]) or "null"


class _Part(NamedTuple):
    """One statement, cut at its parameters: `names[n]` stands behind `texts[n]`, as JSON if `is_json[n]`."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    is_json: tuple[bool, ...]

    def filled(self, given: Mapping[str, Any], text: Callable[[str], str]) -> str:
        pieces = [self.texts[0]]
        for name, is_json, after in zip(self.names, self.is_json, self.texts[1:], strict=True):
            value = given[name]
            if is_json and value is not None:
                pieces.append(text(value if isinstance(value, str) else msgspec.json.encode(value).decode()))
            else:
                pieces.append(_literal(value, text))
            pieces.append(after)
        return "".join(pieces)


def _cut(sql: str) -> _Part:
    texts = [""]
    names: list[str] = []
    is_json: list[bool] = []
    end = 0
    for found in _PARAMETER.finditer(sql):
        texts[-1] += sql[end : found.start()] + (found[1] or "")
        names.append(found[2])
        is_json.append(found[1] is not None)
        texts.append("")
        end = found.end()
    texts[-1] += sql[end:]
    return _Part(tuple(texts), tuple(names), tuple(is_json))


class _Statement(NamedTuple):
    """`parts`, and for an insert of one row what stands before, around and behind its values."""

    parts: tuple[_Part, ...]
    insert: tuple[_Part, _Part, _Part] | None


def _parse(sql: str) -> _Statement:
    plain = _COMMENT.sub("", sql)
    found = _VALUES.fullmatch(plain.strip()) if ";" not in plain else None
    insert = None if found is None else (_cut(found[1]), _cut(found[2]), _cut(found[3]))
    return _Statement(tuple(_cut(part.strip()) for part in plain.split(";")), insert)


class MysqlStatements:
    """The statements with a clock put in: that of the server, or a given one."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock
        self.is_server_clock = clock is None
        """Whether instants come from the server; the clock of a test may jump on purpose."""
        places = {
            "{now}": SERVER_CLOCK if clock is None else ":now",
            "{minute}": str(MINUTE),
            "{priority_step}": str(span_micros(PRIORITY_STEP)),
        }
        self._known: dict[str, _Statement] = {}
        self._fill_in: Callable[[str], str] = partial(_replaced, places=places)

    def filled(self, name: str, given: Mapping[str, Any], text: Callable[[str], str] = quoted) -> list[str]:
        """Return the parts of a statement with its parameters; `text` returns what stands for a text."""
        return [part.filled(self._with_clock(given), text) for part in self._statement(name).parts]

    def each(self, asked: Each, text: Callable[[str], str] = quoted) -> list[str]:
        """Return the statements for many rows: as few inserts as their length allows, else one for each row."""
        statement = self._statement(asked.statement)
        rows = [self._with_clock(row) for row in asked.rows]
        if statement.insert is None:
            return [part.filled(row, text) for row in rows for part in statement.parts]
        before, values, behind = statement.insert
        made: list[str] = []
        chunk: list[str] = []
        size = 0

        def placed(given: str) -> str:
            nonlocal size
            place = text(given)
            size += max(0, len(given) - len(place))  # where the driver puts it in
            return place

        for row in rows:
            chunk.append(values.filled(row, placed))
            size += len(chunk[-1])
            if size > _LONGEST_TEXT and asked.statement not in _IN_ONE:
                made.append(before.filled(row, text) + ",".join(chunk) + behind.filled(row, text))
                chunk, size = [], 0
        if chunk:
            made.append(before.filled(rows[0], text) + ",".join(chunk) + behind.filled(rows[0], text))
        return made

    def _statement(self, name: str) -> _Statement:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _parse(self._fill_in(TEMPLATES[name]))
        return known

    def _with_clock(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return given if self._clock is None else {**given, "now": self._clock()}


def _replaced(text: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def trips(texts: Sequence[str]) -> list[list[str]]:
    """Divide statements into groups that travel together."""
    groups: list[list[str]] = []
    size = _LONGEST_TEXT
    for text in texts:
        if size + len(text) > _LONGEST_TEXT:
            groups.append([])
            size = 0
        groups[-1].append(text)
        size += len(text)
    return groups
