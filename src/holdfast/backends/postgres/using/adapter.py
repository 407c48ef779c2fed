"""What a kind of connection comes down to: a way to the driver's own connection, blocking or async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection, Connection

from holdfast.errors import ConfigError


class AsyncpgStatement(Protocol):
    """What is used of asyncpg's `PreparedStatement`."""

    async def fetch(self, *args: object) -> list[Any]:
        """Run it."""
        ...

    def get_attributes(self) -> Sequence[object]:
        """Describe its columns."""
        ...

    def get_statusmsg(self) -> str:
        """Return the command tag of the last run."""
        ...


class AsyncpgConnection(Protocol):
    """What is used of asyncpg's `Connection`."""

    def is_closed(self) -> bool:
        """Whether it is closed."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    async def prepare(self, query: str, *, name: str) -> AsyncpgStatement:
        """Let the server read a statement; under the empty name it keeps it only until the next one."""
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
    return ConfigError(f"the connection given as using= is in no transaction: open {remedy} first")


def is_closed() -> ConfigError:
    """Return the error for a closed connection."""
    return ConfigError("the connection given as using= is closed")


def has_failed() -> ConfigError:
    """Return the error for a transaction in which a statement has failed before."""
    return ConfigError(
        "the transaction of the connection given as using= has failed already, so that the server takes nothing more "
        "in it: roll it back, or back to a savepoint, first"
    )
