"""Maps errors of SQLite to errors of Holdfast, with the remedy in the message."""

from __future__ import annotations

import sqlite3

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable

_PRIMARY = 0xFF  # the low byte of an extended error code


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether the error says that another connection holds the lock; a later attempt may succeed."""
    return (error.sqlite_errorcode & _PRIMARY) == sqlite3.SQLITE_BUSY


def translate(error: sqlite3.Error, where: str, *, committing: bool = False) -> HoldfastError:
    """Return what to raise in place of `error`.

    A transaction that fails before its commit was not written. A failed commit was not written either if SQLite reports
    a missing lock or a full disk; after an I/O error the outcome is unknown.
    """
    code = getattr(error, "sqlite_errorcode", 0) or 0
    primary = code & _PRIMARY
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StoreUnavailable(
            f"{where} is locked: another process has held the write lock for too long ({name}). "
            "Look for a long transaction of your application on this file; busy_timeout in the URL sets how long to "
            "wait"
        )
    if primary == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"the disk under {where} is full; nothing was written. Free some space: processing then resumes by itself"
        )
    if primary == sqlite3.SQLITE_IOERR:
        text = f"the disk under {where} failed ({name}: {error})"
        return OutcomeUnknown(text) if committing else StoreUnavailable(text)
    if primary in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StoreUnavailable(f"{where} cannot be opened for writing ({name}): check the path and its permissions")
    if primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreError(
            f"{where} is damaged or is not a SQLite database ({name}): restore a backup or name another file"
        )
    return StoreError(f"{where}: {error} ({name})")


def write_lock_held(timeout: float) -> StoreUnavailable:
    """Return the error of a writer that waited too long for another one of this process."""
    held = f"a transaction in this process has held the write lock for more than {timeout:g} s"
    return StoreUnavailable(f"{held}: do slow work before the transaction, not inside it")
