"""Django: `connections["default"]` over psycopg 3, inside `transaction.atomic()`."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from holdfast.backends.postgres.using.adapter import Blocking, Kind, has_failed, no_transaction
from holdfast.backends.postgres.using.optional_types import comes_from
from holdfast.backends.postgres.using.psycopg import check_open, is_blocking
from holdfast.errors import ConfigError


def recognise(using: Any) -> Kind | None:
    """Return how to reach its connection; None for objects of other libraries."""
    if comes_from(using, "django.utils.connection", "ConnectionProxy"):
        message = (
            "django.db.connection, given as using=, is a different connection in each thread: pass the connection "
            'itself, `using=connections["default"]` (from django.db import connections)'
        )
        raise ConfigError(message)
    if not comes_from(using, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return None
    raw = _check(using)
    return Blocking(lambda: _same(raw, _check(using)))


def _check(using: Any) -> Connection[Any]:
    if using.vendor != "postgresql":
        raise ConfigError(f"the Django connection given as using= leads to {using.vendor}, not to PostgreSQL")
    if not using.in_atomic_block:
        raise no_transaction("`with transaction.atomic():`")
    if using.needs_rollback:
        raise has_failed()
    raw = using.connection
    if is_blocking(raw):
        return check_open(raw)
    driver = type(raw).__module__.partition(".")[0]
    message = f"the Django connection given as using= uses {driver}: install psycopg 3, which Django then prefers"
    raise ConfigError(message)


def _same(before: Connection[Any], now: Connection[Any]) -> Connection[Any]:
    """Check that Django has not reconnected since the connection was passed."""
    if before is not now:
        raise ConfigError("the Django connection given as using= has reconnected since the call")
    return now
