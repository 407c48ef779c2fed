"""What the house rules look at: the project's own files, read once and the same way by every rule."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"


class Module(NamedTuple):
    """A Python file: its path from the top of the repository, its text and its tree."""

    path: str
    text: str
    tree: ast.Module


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def modules(*folders: str) -> Iterator[Module]:
    """Yield every Python file under the given folders of the repository, in a stable order."""
    for folder in folders:
        yield from _modules_in(folder)


@cache
def _modules_in(folder: str) -> list[Module]:
    return [_module(file) for file in sorted((ROOT / folder).rglob("*.py"))]


def _module(file: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    return Module(file.relative_to(ROOT).as_posix(), text, ast.parse(text, filename=str(file)))


def sql_files(pattern: str = "*.sql") -> list[Path]:
    """Return the package's .sql files that match, in a stable order."""
    return sorted(PACKAGE.rglob(pattern))


def docstrings(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes that are docstrings: prose, not code."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(first.value)
    return found


def report(findings: list[Finding]) -> str:
    """Return the findings as lines that an editor can jump to."""
    return "\n" + "\n".join(str(finding) for finding in findings)
