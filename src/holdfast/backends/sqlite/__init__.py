"""SQLite: the embedded store. No server to install or run; one file, many processes."""

from __future__ import annotations

from holdfast.backends.sqlite.backend import open_backend

__all__ = ["open_backend"]
