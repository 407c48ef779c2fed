"""The statements of a target, from `.sql` files, with names of our own filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from holdfast.torture.names import QUEUES
from holdfast.torture.streams.names import CONSUMERS, PARTITIONS

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


_TYPES = {"text": "text", "chars": "text", "whole": "bigint"}
_OURS = {"ours": _listed(QUEUES), "categories": _listed(PARTITIONS), "consumers": _listed(CONSUMERS)}


@cache
def _load(dialect: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in ("jobs.sql", "streams.sql", f"{dialect}.sql"):
        parts = _HEADER.split(files("holdfast.torture.target").joinpath(name).read_text(encoding="utf-8"))
        texts = zip(parts[1::2], parts[2::2], strict=True)
        found.update({statement: text.strip().rstrip(";") for statement, text in texts})
    return found


class TargetStatements:
    """The statements for one store.

    `at` is the prefix of its tables, `mark` that of a parameter, `number` the type of a column that counts its rows.
    """

    def __init__(self, dialect: str, *, at: str, mark: str, number: str, **names: str) -> None:
        self._texts = _load(dialect)
        self._names = {"at": at, "mark": mark, "number": number, **_OURS, **_TYPES, **names}

    def __getitem__(self, name: str) -> str:
        """Return a statement."""
        return self.with_names(name)

    def with_names(self, name: str, **more: str | int) -> str:
        """Return a statement with more names or numbers of our own in it."""
        return self._texts[name].format_map({**self._names, **more})
