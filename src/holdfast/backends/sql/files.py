"""The `.sql` files of a store: its named statements under `sql/`, its numbered migrations under `migrations/`."""

from __future__ import annotations

import re
from importlib.resources import files

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")


def statements(package: str) -> dict[str, str]:
    """Return the statements of a store's package by name; raises `RuntimeError` if a name is defined twice."""
    found: dict[str, str] = {}
    for path in sorted(files(package).joinpath("sql").iterdir(), key=lambda path: path.name):
        parts = _HEADER.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                message = f"{path.name} defines the statement {name} again"
                raise RuntimeError(message)
            found[name] = text.strip().rstrip(";")
    return found


def migrations(package: str) -> dict[int, str]:
    """Return the migrations of a store's package by number, in ascending order."""
    found: dict[int, str] = {}
    for path in files(package).joinpath("migrations").iterdir():
        match = _MIGRATION.fullmatch(path.name)
        if match:
            found[int(match[1])] = path.read_text(encoding="utf-8")
    return dict(sorted(found.items()))
