"""SQLAlchemy: sessions and connections, blocking and async.

SQLAlchemy begins its transaction with the first statement that goes through it. A verb bypasses it and uses the driver,
so the transaction is begun here in the same way: otherwise a later `commit()` would find nothing to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.backends.sql.using.kinds import ConnectionKind, comes_from, errors_of, is_closed
from holdfast.errors import ConfigError, StoreUnavailable

_FORMS = (  # the module and class of an object, and whether its calls are awaited
    ("sqlalchemy.orm", "Session", False),
    ("sqlalchemy.engine", "Connection", False),
    ("sqlalchemy.ext.asyncio", "AsyncSession", True),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", True),
)
_SCOPED = (("sqlalchemy.orm", "scoped_session"), ("sqlalchemy.ext.asyncio", "async_scoped_session"))


class Driver(NamedTuple):
    """A driver under SQLAlchemy. `check` returns its connection, or raises if it cannot be used.

    `start` is for drivers to which SQLAlchemy sends nothing when it begins. It receives SQLAlchemy's connection and the
    driver's, and begins the transaction unless it has begun; the connection is checked afterwards.
    """

    check: Callable[[Any], Any]
    start: Callable[[Any, Any], object] | None = None


class SqlAlchemyConnections(NamedTuple):
    """Recognises SQLAlchemy's objects over these drivers, which are named as in the URL of an engine."""

    blocking: Mapping[str, Driver]
    awaited: Mapping[str, Driver] = {}

    def recognise(self, using: Any) -> ConnectionKind | None:
        """Return how to reach its connection; None for objects of other libraries."""
        for module, name, is_async in _FORMS:
            if comes_from(using, module, name):
                driver = self._driver(using, is_async=is_async)
                return ConnectionKind(_reaching(using, driver, is_async=is_async), is_async)
        if any(comes_from(using, *scoped) for scoped in _SCOPED):
            message = (
                f"the {type(using).__name__} given as using= is a different session in each thread or task: pass the "
                "session itself, `using=session()`"
            )
            raise ConfigError(message)
        return None

    def _driver(self, using: Any, *, is_async: bool) -> Driver:
        with _explained(using):
            dialect = (using.get_bind() if hasattr(using, "get_bind") else using).dialect
        if dialect.is_async and not is_async:
            message = (
                f"the {type(using).__name__} given as using= belongs to an async one: pass that AsyncSession or "
                "AsyncConnection, and await the call"
            )
            raise ConfigError(message)
        drivers, name = self.awaited if is_async else self.blocking, f"{dialect.name}+{dialect.driver}"
        if name not in drivers:
            remedy = "create its engine with" if drivers else "pass a blocking Session or Connection, of an engine with"
            message = (
                f"the SQLAlchemy {type(using).__name__} given as using= uses {name}: "
                f"{remedy} a URL that begins with {' or '.join(drivers or self.blocking)}"
            )
            raise ConfigError(message)
        return drivers[name]


def _reaching(using: Any, driver: Driver, *, is_async: bool) -> Callable[[], Any]:
    def reach() -> Any:
        with _explained(using):
            return _reach(using, driver)

    async def reach_async() -> Any:
        with _explained(using):
            return await using.run_sync(_reach, driver)

    return reach_async if is_async else reach


def _reach(using: Any, driver: Driver) -> Any:
    connection = using.connection() if comes_from(using, "sqlalchemy.orm", "Session") else using
    if connection.closed:
        raise is_closed()
    raw = connection.connection.driver_connection
    if driver.start is None:
        driver.check(raw)
    if not connection.in_transaction():
        connection.begin()
    if driver.start is None:
        return raw
    driver.start(connection, raw)
    return driver.check(raw)


@contextmanager
def _explained(using: object) -> Generator[None]:
    """Translate SQLAlchemy's errors: a session that must be rolled back first, a server that cannot be reached."""
    try:
        yield
    except errors_of("sqlalchemy.exc", "DBAPIError") as error:
        raise StoreUnavailable(f"the {type(using).__name__} given as using=: {error}") from error
    except errors_of("sqlalchemy.exc", "SQLAlchemyError") as error:
        raise ConfigError(f"the {type(using).__name__} given as using= cannot be used: {error}") from error
