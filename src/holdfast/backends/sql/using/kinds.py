"""What each kind of connection provides: access to the driver's connection, blocking or async."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from holdfast.errors import ConfigError


class ConnectionKind(NamedTuple):
    """How to reach the driver's connection; if `is_async`, its calls and `reach` itself are awaited.

    A blocking `reach` is called where the connection is used. It raises `ConfigError` if no transaction is open.
    """

    reach: Callable[[], Any]
    is_async: bool


def direct(raw: Any, check: Callable[[Any], Any], *, is_async: bool = False) -> ConnectionKind:
    """Return the kind of a driver's own connection; `check` returns it, or raises if it cannot be used."""
    check(raw)

    async def reach() -> Any:
        return check(raw)

    return ConnectionKind(reach if is_async else partial(check, raw), is_async)


def comes_from(using: Any, module: str, *names: str) -> bool:
    """Return whether an object is of one of these classes; no if the library is not loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(using, tuple(getattr(loaded, name) for name in names))


def errors_of(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Return the error classes of a library that is loaded."""
    return tuple(getattr(sys.modules[module], name) for name in names)


def no_transaction(remedy: str) -> ConfigError:
    """Return the error for a connection on which each statement would commit by itself."""
    return ConfigError(f"the connection given as using= is not in a transaction: {remedy} first")


def is_closed() -> ConfigError:
    """Return the error for a closed connection."""
    return ConfigError("the connection given as using= is closed")


def has_failed() -> ConfigError:
    """Return the error for a transaction in which an earlier statement failed."""
    return ConfigError(
        "the transaction of the connection given as using= has already failed, so the server rejects further "
        "statements in it: roll it back, or roll back to a savepoint, first"
    )
