"""The statements of the ground, from `.sql` files, with names of our own filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from holdfast.torture.names import QUEUES
from holdfast.torture.streams.names import CONSUMERS, PARTITIONS

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def listed(names: Iterable[str]) -> str:
    """Return names of our own as they stand in a statement."""
    return ", ".join(f"'{name}'" for name in names)


_OURS = {"ours": listed(QUEUES), "categories": listed(PARTITIONS), "consumers": listed(CONSUMERS)}
_MARKS = {"sqlite": "?", "postgres": "%s"}


@cache
def _load(dialect: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in ("ground.sql", "streams.sql", f"{dialect}.sql"):
        parts = _HEADER.split(files("holdfast.torture.target").joinpath(name).read_text(encoding="utf-8"))
        texts = zip(parts[1::2], parts[2::2], strict=True)
        found.update({statement: text.strip().rstrip(";") for statement, text in texts})
    return found


class TargetStatements:
    """The statements for one store; `at` stands before the names of its tables."""

    def __init__(self, dialect: str, at: str, **names: str) -> None:
        self.at = at
        self._texts = _load(dialect)
        self._names = {"at": at, "mark": _MARKS[dialect], **_OURS, **names}

    def __getitem__(self, name: str) -> str:
        """Return a statement."""
        return self.with_names(name)

    def with_names(self, name: str, **more: str | int) -> str:
        """Return a statement with more names or numbers of our own in it."""
        return self._texts[name].format_map({**self._names, **more})


def sqlite_statements() -> TargetStatements:
    """Return the statements for SQLite."""
    return TargetStatements("sqlite", "holdfast_")


def postgres_statements(schema: str, **names: str) -> TargetStatements:
    """Return the statements for a schema on PostgreSQL, whose name was checked when the URL was read."""
    return TargetStatements("postgres", f'"{schema}".', schema=schema, **names)
