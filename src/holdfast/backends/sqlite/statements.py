"""The statements of this backend, read once from the `.sql` files beside this module."""

from __future__ import annotations

import re
from importlib.resources import files

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _load() -> dict[str, str]:
    statements: dict[str, str] = {}
    for path in sorted(files("holdfast.backends.sqlite").joinpath("sql").iterdir(), key=lambda path: path.name):
        parts = _HEADER.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in statements:
                message = f"{path.name} defines the statement {name} again"
                raise RuntimeError(message)
            statements[name] = text.strip().rstrip(";")
    return statements


STATEMENTS = _load()
