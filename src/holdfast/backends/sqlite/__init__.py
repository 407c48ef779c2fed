"""SQLite: the embedded store. Nothing to install, nothing to run; one file, many processes."""

from __future__ import annotations

from holdfast.backends.sqlite.backend import open_backend

__all__ = ["open_backend"]
