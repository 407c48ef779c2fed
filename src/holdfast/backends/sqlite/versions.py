"""Versions of SQLite that this backend rejects, and known faults of others."""

from __future__ import annotations

import logging
import sqlite3

from holdfast.errors import ConfigError

OLDEST = (3, 38, 0)  # strict tables, returning, the ->> operator
WAL_RESET_FIXED = (3, 51, 3)

_WAL_RESET = (
    "versions 3.7.0 to 3.51.2 can, rarely, corrupt a database when one process resets the write-ahead log while "
    "another writes (fixed in 3.51.3): use a Python built with a newer SQLite, and keep backups"
)

_logger = logging.getLogger("holdfast.sqlite")


def known_faults(version: tuple[int, int, int]) -> list[str]:
    """Return the known faults of a version, as sentences."""
    if version < WAL_RESET_FIXED:
        return [_WAL_RESET]
    return []


def check_version() -> None:
    """Raise `ConfigError` if SQLite is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        message = (
            f"SQLite {sqlite3.sqlite_version} is too old: {'.'.join(map(str, OLDEST))} or newer is needed; "
            "use a newer Python, or one built against a newer SQLite"
        )
        raise ConfigError(message)


def log_faults() -> None:
    """Log the known faults of this version: called once per store, by the process that installs its tables."""
    for fault in known_faults(sqlite3.sqlite_version_info):
        _logger.info("this Python uses SQLite %s: %s", sqlite3.sqlite_version, fault)
