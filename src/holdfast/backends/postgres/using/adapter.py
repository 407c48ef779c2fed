"""What each kind of connection provides: access to the driver's connection, blocking or async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection, Connection

from holdfast.errors import ConfigError


class AsyncpgStatement(Protocol):
    """The part of asyncpg's `PreparedStatement` that is used here."""

    async def fetch(self, *args: object) -> list[Any]:
        """Run the statement."""
        ...

    def get_attributes(self) -> Sequence[object]:
        """Describe the columns of its result."""
        ...

    def get_statusmsg(self) -> str:
        """Return the command tag of the last run."""
        ...


class AsyncpgConnection(Protocol):
    """The part of asyncpg's `Connection` that is used here."""

    def is_closed(self) -> bool:
        """Whether it is closed."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    async def prepare(self, query: str, *, name: str) -> AsyncpgStatement:
        """Prepare a statement; under the empty name, the server keeps it only until the next one."""
        ...


class Blocking(NamedTuple):
    """A connection whose calls block; `reach` is called in a thread."""

    reach: Callable[[], Connection[Any]]


class Async(NamedTuple):
    """A connection whose calls are awaited."""

    reach: Callable[[], Awaitable[AsyncConnection[Any] | AsyncpgConnection]]


Kind = Blocking | Async


def no_transaction(remedy: str) -> ConfigError:
    """Return the error for a connection on which each statement would commit by itself."""
    return ConfigError(f"the connection given as using= is not in a transaction: open {remedy} first")


def is_closed() -> ConfigError:
    """Return the error for a closed connection."""
    return ConfigError("the connection given as using= is closed")


def has_failed() -> ConfigError:
    """Return the error for a transaction in which an earlier statement failed."""
    return ConfigError(
        "the transaction of the connection given as using= has already failed, so the server rejects further "
        "statements in it: roll it back, or roll back to a savepoint, first"
    )
