"""Run verbs in the caller's open transaction.

Statements go one by one, because several in one message are for the caller's session to allow; texts are bound by the
driver, because the SQL mode is the caller's; rows are read as tuples, whatever cursor the caller prefers. After a
deadlock the caller's transaction is gone, and after a lock wait half of it may be: the caller must roll back.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.backends.mysql.connecting import connect_blocking
from holdfast.backends.mysql.driver import Result, drop
from holdfast.backends.mysql.error_map import DriverError, translate
from holdfast.backends.mysql.execute import Session, drive_blocking, exchange, exchange_blocking
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.mysql.using import drivers
from holdfast.backends.sql.steps import row
from holdfast.backends.sql.using.callers import Callers
from holdfast.backends.sql.using.django import DjangoConnections
from holdfast.backends.sql.using.sqlalchemy import Driver, SqlAlchemyConnections
from holdfast.concurrency.statement_threads import in_own_thread
from holdfast.errors import ConfigError
from holdfast.store.steps import Ready, Steps

T = TypeVar("T")
_KINDS = (
    "a PyMySQL, mysqlclient or asyncmy connection, a SQLAlchemy Session or Connection (also async), or a Django "
    "connection"
)
_BLOCKING = {
    f"{dialect}+{driver}": Driver(drivers.check_open)
    for dialect in ("mysql", "mariadb")
    for driver in ("pymysql", "mysqldb")
}
_AWAITED = {f"{dialect}+asyncmy": Driver(drivers.check_open) for dialect in ("mysql", "mariadb")}
_RECOGNISERS = (
    drivers.recognise,
    SqlAlchemyConnections(blocking=_BLOCKING, awaited=_AWAITED).recognise,
    DjangoConnections("mysql", "MySQL", drivers.check_open).recognise,
)


class TablesIdentity(NamedTuple):
    """What a session sees: the database, and the number of the installation in it."""

    database: str | None
    installation: str | None


def _look() -> Steps[TablesIdentity]:
    return TablesIdentity(*(yield from row("identify")))


class MysqlCallers(Callers):
    """The connections that callers pass, of any kind."""

    def __init__(self, location: MysqlLocation, statements: MysqlStatements) -> None:
        super().__init__(_KINDS, _RECOGNISERS)
        self._location = location
        self._statements = statements
        self._ours: TablesIdentity | None = None
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        """The connections that lead to our tables, each with what goes before every statement."""

    def drive_blocking(self, raw: Any, steps: Steps[T]) -> T:  # noqa: D102 - see `Callers`
        with _explained(raw):
            prefix = self._prefix(raw)
            if prefix is None:
                found = self._run(raw, _look(), "")
                prefix = self._remember(raw, found, drivers.rows_of(raw, drivers.SNAPSHOT_CHECKS))
            return self._run(raw, steps, prefix)

    async def drive(self, raw: Any, steps: Steps[T]) -> T:  # noqa: D102
        with _explained(raw):
            prefix = self._prefix(raw)
            if prefix is None:
                found = await self._run_async(raw, _look(), "")
                checks = (await drivers.ask_async(raw, drivers.SNAPSHOT_CHECKS, ())).rows
                prefix = await in_own_thread(lambda: self._remember(raw, found, checks))
            return await self._run_async(raw, steps, prefix)

    def _prefix(self, raw: Any) -> str | None:
        with self._lock:
            return self._known.get(raw)

    def _remember(self, raw: Any, found: TablesIdentity, checks: Any) -> str:
        """Return what goes before every statement; raise `ConfigError` unless a connection leads to our tables."""
        if found != self._ours:
            self._ours = self._ask()
            if found != self._ours:
                message = (
                    f"the connection given as using= leads to the database {found.database!r}, not to the tables of "
                    f"{self._location.url}"
                )
                raise ConfigError(message)
        is_checked = any(str(value).upper() == "ON" for _, value in checks or ())
        with self._lock:
            self._known[raw] = prefix = drivers.WITHOUT_SNAPSHOT_CHECKS if is_checked else ""
        return prefix

    def _ask(self) -> TablesIdentity:
        connection = connect_blocking(self._location)
        try:
            return drive_blocking(connection, Session(self._statements), _look(), Ready())
        except DriverError as error:
            raise translate(error, self._location.url, broken=False) from error
        finally:
            drop(connection)

    def _run(self, raw: Any, steps: Steps[T], prefix: str) -> T:
        session = _CallersSession(self._statements, prefix)

        def ask(texts: list[str]) -> list[Result]:
            with drivers.as_ours():
                return [drivers.ask(raw, *bound) for bound in session.bound(texts)]

        return exchange_blocking(session.messages(steps, Ready()), ask)

    async def _run_async(self, raw: Any, steps: Steps[T], prefix: str) -> T:
        session = _CallersSession(self._statements, prefix)

        async def ask(texts: list[str]) -> list[Result]:
            with drivers.as_ours():
                return [await drivers.ask_async(raw, *bound) for bound in session.bound(texts)]

        return await exchange(session.messages(steps, Ready()), ask)


class _CallersSession(Session):
    """Texts leave their places to the driver."""

    def __init__(self, statements: MysqlStatements, prefix: str) -> None:
        super().__init__(statements)
        self._prefix = prefix
        self._texts: list[str] = []

    def place(self, text: str) -> str:
        """Keep a text; return the mark for it."""
        self._texts.append(text)
        return "\0"

    def bound(self, texts: Sequence[str]) -> Generator[tuple[str, tuple[str, ...]]]:
        """Yield each statement with its texts."""
        for text in texts:
            count = text.count("\0")
            given, self._texts = self._texts[:count], self._texts[count:]
            yield self._prefix + text.replace("%", "%%").replace("\0", "%s"), tuple(given)


@contextmanager
def _explained(raw: Any) -> Generator[None]:
    try:
        with drivers.as_ours():
            yield
    except DriverError as error:
        raise translate(error, "the caller's connection", broken=not drivers.is_open(raw)) from error
