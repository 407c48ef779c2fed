"""Map errors of psycopg to errors of Holdfast, with the remedy in the message."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg import errors

from holdfast.backends.postgres.location import DEFAULT_SCHEMA
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

_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
_REASONS = (
    ((errors.ReadOnlySqlTransaction,), "is read-only (a standby?); reconnecting"),
    ((errors.QueryCanceled, errors.LockNotAvailable), "cancelled the statement"),
    (_AGAIN, "rolled the transaction back in favour of another one"),
)
_MISSING = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)
_CLASSES_OF_OUTAGE = ("08", "53", "57", "58")  # connection, resources, operator, system
_IN_TRANSACTION_TOO_LONG = ("25P03", "25P04")


def is_conflict(error: BaseException | None) -> bool:
    """Return whether the server aborted this transaction in favour of another one: nothing was written."""
    return isinstance(error, _AGAIN)


def is_read_only(error: psycopg.Error) -> bool:
    """Return whether the server rejects writes: it is a standby, or has become one."""
    return isinstance(error, errors.ReadOnlySqlTransaction)


def took_too_long(error: BaseException) -> bool:
    """Return whether the server ended the session because its transaction exceeded a timeout."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _IN_TRANSACTION_TOO_LONG


def was_ended(error: BaseException) -> bool:
    """Return whether another session terminated this one."""
    return isinstance(error, errors.AdminShutdown)


def translate(error: psycopg.Error, where: str, *, broken: bool, committing: bool = False) -> HoldfastError:
    """Return the error to raise in place of `error`.

    `broken`: the connection is lost. `committing`: the server may have committed before it broke. An error reply on a
    connection that is still open always means that nothing was written.
    """
    text = str(error).strip().partition("\n")[0]
    if broken and committing:
        return OutcomeUnknown(f"{where}: the connection broke before the server confirmed the commit ({text})")
    if isinstance(error, errors.InsufficientPrivilege):
        return PrivilegeMissing(f"{where}: {text}: {_grants(where, text)}")
    if isinstance(error, _MISSING):
        return SchemaMismatch(f"{where}: {text}: run `holdfast schema install`")
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            kind = TransactionConflict if is_conflict(error) else StoreUnavailable
            if isinstance(error, errors.LockNotAvailable):
                kind = LockedTooLong
            return kind(f"{where} {reason} ({text})")
    is_about_the_link = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    if broken or is_about_the_link or (error.sqlstate or "")[:2] in _CLASSES_OF_OUTAGE:
        return StoreUnavailable(f"{where} cannot be reached ({text})")
    return StoreError(f"{where}: {text} ({type(error).__name__})")


def _grants(where: str, text: str) -> str:
    """Return the remedy for a missing privilege; PostgreSQL names the object, but not the privilege."""
    parts = urlsplit(where)
    schema = dict(parse_qsl(parts.query)).get("schema", DEFAULT_SCHEMA)
    role = f'"{unquote(parts.username)}"' if parts.username else "the role"
    if "for schema" in text:
        statements = f"grant usage on schema {schema} to {role}"
    else:
        statements = (
            f"grant select, insert, update, delete on all tables in schema {schema} to {role}; "
            f"grant usage on all sequences in schema {schema} to {role}"
        )
    return (
        f"as the owner of the tables, run `{statements}`. That is what a worker needs; a role that only enqueues or "
        "reads needs less (docs/howto/postgresql.md, Roles)"
    )
