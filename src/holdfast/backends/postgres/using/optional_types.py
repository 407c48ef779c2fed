"""Recognise objects of libraries that may not be installed."""

from __future__ import annotations

import sys
from typing import Any


def comes_from(using: Any, module: str, *names: str) -> bool:
    """Return whether an object is of one of these classes; no if the library is not loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(using, tuple(getattr(loaded, name) for name in names))


def errors_of(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Return the error classes of a library that is loaded."""
    return tuple(getattr(sys.modules[module], name) for name in names)
