"""Map errors of the drivers to errors of Holdfast, with the remedy in the message."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncmy.errors
import pymysql

from holdfast.errors import (
    HoldfastError,
    OutcomeUnknown,
    PrivilegeMissing,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    TransactionConflict,
)
from holdfast.store.steps import LockedTooLong

DriverError: tuple[type[Exception], ...] = (pymysql.MySQLError, asyncmy.errors.MySQLError)
DUPLICATE = 1062
LOCK_WAIT = 1205
_CONFLICTS = {
    DUPLICATE: "found a row that another transaction has added meanwhile",
    1213: "rolled the transaction back in favour of another one",
    1020: "rolled the transaction back: a row has changed since its snapshot",
    3101: "rolled the transaction back: another node has changed its rows",
    LOCK_WAIT: "waited too long for a row that another transaction has locked",
    3572: "found a row locked by another transaction",
}
_READ_ONLY = {1792, 1836, 3100}
_OPTION_PREVENTS = 1290  # `read_only` or another option, which the message names
_MISSING = {1146, 1054}
_DENIED = {1044, 1142, 1143, 1227, 1370}
_INTERRUPTED = {1317, 1969, 3024}  # by an administrator, or a limit on the time of a statement
# The link, the end of a session, a server that starts, stops, is full, has no connection or no quorum left.
_OUTAGE = {
    *(0, 1021, 1040, 1041, 1047, 1053, 1077, 1079, 1080, 1114, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226),
    *(1927, 2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2055, 3168, 3169, 4031, *_INTERRUPTED),
}
_LAST_WORDS = {1053, 1158, 1159, 1160, 1161, 1927, 4031}  # of a server that closes the session
_NO_SAVEPOINT = 1305
_STALE = 1242
_TOO_LARGE = 1153
_LOGS_STATEMENTS = 1665


def code_of(error: BaseException | None) -> int:
    """Return the number of a driver's error; 0 for errors about the link, -1 for others."""
    if not isinstance(error, DriverError):
        return -1
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def is_conflict(error: BaseException | None) -> bool:
    """Return whether the server gave this transaction up in favour of another one."""
    return code_of(error) in _CONFLICTS and not is_duplicate(error)


def is_duplicate(error: BaseException | None) -> bool:
    """Return whether a row with the same key exists; only the statement was undone."""
    return code_of(error) == DUPLICATE


def is_refused(error: BaseException | None) -> bool:
    """Return whether a statement failed on purpose, because the one before it changed fewer rows than it had to."""
    return code_of(error) == _STALE


def is_read_only(error: BaseException | None) -> bool:
    """Return whether the server rejects writes: it is a replica, or has become one."""
    code = code_of(error)
    return code in _READ_ONLY or (code == _OPTION_PREVENTS and "read-only" in str(error))


def lacks_savepoint(error: BaseException | None) -> bool:
    """Return whether a savepoint does not exist: it was never set, or its transaction has ended."""
    return code_of(error) == _NO_SAVEPOINT


def ends_session(error: BaseException | None) -> bool:
    """Return whether the server closes the session with this error; the link may look open for a while."""
    return code_of(error) in _LAST_WORDS


def translate(
    error: BaseException, where: str, *, broken: bool, committing: bool = False, database: str | None = None
) -> HoldfastError:
    """Return the error to raise in place of `error`.

    `where` is the URL of the store, or words for a connection to its `database`.

    `broken`: the connection is lost. `committing`: the server may have committed before it broke. An error reply on a
    connection that is still open means that nothing was committed, unless the statement was interrupted or the session
    ended: the server looks for that once more after the commit, before it replies.
    """
    code = code_of(error)
    text = str(error.args[1] if code >= 0 and len(error.args) > 1 else error) or type(error).__name__
    if committing and (broken or code in _INTERRUPTED | _LAST_WORDS):
        what = "connection broke" if broken else "statement was interrupted"
        return OutcomeUnknown(f"{where}: the {what} before the server confirmed the commit ({text})")
    if code in _MISSING:
        return SchemaMismatch(f"{where}: {text}: run `holdfast schema install`")
    if code in _DENIED:
        return PrivilegeMissing(f"{where}: {text}: {_grants(database or urlsplit(where).path.strip('/'))}")
    kind, reason = _kind(error, code, broken=broken)
    return kind(f"{where}{reason} ({text})")


def _kind(error: BaseException, code: int, *, broken: bool) -> tuple[type[HoldfastError], str]:
    if code in _CONFLICTS:
        return (LockedTooLong if code == LOCK_WAIT else TransactionConflict), f" {_CONFLICTS[code]}"
    if is_read_only(error):
        return StoreUnavailable, " is read-only (a replica?); reconnecting"
    if code == _TOO_LARGE:
        return StoreError, " refuses a large message: raise its max_allowed_packet, or store large payloads elsewhere"
    if code == _LOGS_STATEMENTS:
        return StoreError, " logs statements, which read committed forbids: set binlog_format = ROW or MIXED"
    if broken or code in _OUTAGE or isinstance(error, OSError):
        return StoreUnavailable, " cannot be reached"
    return StoreError, f": {type(error).__name__} {code}"


def _grants(database: str) -> str:
    return (
        f"as an administrator, run `grant select, insert, update, delete on {database}.* to …` for a worker; a user "
        "that installs the tables also needs create, alter, drop and index (docs/howto/mysql.md, Privileges)"
    )
