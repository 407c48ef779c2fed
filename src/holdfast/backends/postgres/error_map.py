"""From an error of psycopg to an error of Holdfast, with the remedy in its text."""

from __future__ import annotations

import psycopg
from psycopg import errors

from holdfast.errors import HoldfastError, OutcomeUnknown, SchemaMismatch, StoreError, StoreUnavailable

_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
_READ_ONLY = (errors.ReadOnlySqlTransaction,)
_TIMED_OUT = (errors.QueryCanceled, errors.LockNotAvailable)
_MISSING = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)
_CLASSES_OF_OUTAGE = ("08", "53", "57", "58")  # connection, resources, operator, system
_IN_TRANSACTION_TOO_LONG = ("25P03", "25P04")


def is_worth_repeating(error: psycopg.Error) -> bool:
    """Tell whether the server broke this transaction off in favour of another: nothing was done."""
    return isinstance(error, _AGAIN)


def is_read_only(error: psycopg.Error) -> bool:
    """Tell whether the server takes no writes: it is a standby, or has become one."""
    return isinstance(error, _READ_ONLY)


def took_too_long(error: BaseException) -> bool:
    """Tell whether the server ended the session because a transaction was left open."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _IN_TRANSACTION_TOO_LONG


def was_ended(error: BaseException) -> bool:
    """Tell whether another session had the server end this one."""
    return isinstance(error, errors.AdminShutdown)


def translate(error: psycopg.Error, where: str, *, broken: bool, committing: bool = False) -> HoldfastError:
    """Return what to raise in place of `error`.

    `broken`: the connection did not survive. `committing`: the server may have committed before it broke. An answer of
    the server that leaves the connection whole always means that nothing was done.
    """
    text = str(error).strip().partition("\n")[0]
    if broken and committing:
        return OutcomeUnknown(f"{where}: the connection broke before the server had said that it was done ({text})")
    if isinstance(error, _MISSING):
        return SchemaMismatch(f"{where}: {text}: run `holdfast schema install`")
    if is_read_only(error):
        reason = f"takes no writes: it is a standby, or was made one; connecting anew ({text})"
    elif isinstance(error, _TIMED_OUT):
        reason = f"broke the statement off ({text})"
    elif is_worth_repeating(error):
        reason = f"broke the transaction off in favour of another ({text})"
    elif broken or (error.sqlstate or "")[:2] in _CLASSES_OF_OUTAGE or _is_about_the_link(error):
        reason = f"cannot be reached ({text})"
    else:
        return StoreError(f"{where}: {text} ({type(error).__name__})")
    return StoreUnavailable(f"{where} {reason}")


def _is_about_the_link(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None
