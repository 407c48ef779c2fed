"""Files of the user that are named like a module of Python's standard library: one of the two hides the other.

It imports next to nothing: it explains imports that have failed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def hiding_files(folder: str) -> list[Path]:
    """Return the files in `folder` that were imported in place of a module of the standard library."""
    wanted = Path(folder).resolve()
    files = [_file_of(name) for name in sorted(sys.stdlib_module_names & sys.modules.keys())]
    return [file for file in files if file is not None and wanted in file.parents[: 2 if _is_package(file) else 1]]


def hidden_file(name: str, folder: str) -> Path | None:
    """Return the file in `folder` that defines the module `name`, if another module of this name was imported."""
    top = name.partition(".")[0]
    for place in (Path(folder, f"{top}.py"), Path(folder, top, "__init__.py")):
        if place.is_file() and _file_of(top) != place.resolve():
            return place
    return None


def rename(file: Path) -> str:
    """Return why a file must be renamed: Python's standard library has a module of this name."""
    name = file.parent.name if _is_package(file) else file.name
    return f"{name} has the name of a module of Python's standard library: rename it, for example to my_{name}"


def circle(name: str) -> str:
    """Return why a name of Holdfast is not defined yet while a module that Holdfast imports asks for it."""
    found = [rename(file) for file in hiding_files(sys.path[0])]
    return "; ".join(found) or f"{name} is not defined yet: modules import each other in a circle"


def _file_of(name: str) -> Path | None:
    file: object = getattr(sys.modules.get(name), "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _is_package(file: Path) -> bool:
    return file.name == "__init__.py"
