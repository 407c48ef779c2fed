"""Run verbs in the caller's open transaction.

Statements go one by one, because several in one message are for the caller's session to allow; texts are bound by the
driver, because the SQL mode is the caller's; rows are read as tuples, whatever cursor the caller prefers. A verb that
raises has written nothing. After a deadlock the caller's transaction is gone, and on some servers after a lock wait
too: then the caller must roll back.
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
from holdfast.backends.mysql.execute import AskBeside, Session, drive_blocking, exchange, exchange_blocking
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.mysql.using import drivers
from holdfast.backends.sql.steps import row, rows
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
    """What a session sees: the server, the database, and the number of the installation in it.

    The copy of a database has the number of the original.
    """

    server: str | None
    database: str | None
    installation: str | None


class _Manner(NamedTuple):
    """How a caller's session is asked: what goes before every statement, and the bytes of the longest message."""

    prefix: str = ""
    longest: int | None = None


def _look() -> Steps[tuple[TablesIdentity, _Manner]]:
    """Return what a session sees, and how it is asked."""
    database, installation = yield from row("identify")
    variables = dict((yield from rows("session_variables")))
    server = variables.get("server_uuid") or variables.get("server_uid")
    is_checked = str(variables.get("innodb_snapshot_isolation")).upper() == "ON"
    identity = TablesIdentity(server, database, installation)
    prefix = drivers.WITHOUT_SNAPSHOT_CHECKS if is_checked else ""
    return identity, _Manner(prefix, int(variables["max_allowed_packet"]))


class MysqlCallers(Callers):
    """The connections that callers pass, of any kind."""

    def __init__(self, location: MysqlLocation, statements: MysqlStatements, beside: AskBeside) -> None:
        """`beside` reads what is committed: the caller's snapshot may be older, and its isolation cannot be read."""
        super().__init__(_KINDS, _RECOGNISERS)
        self._beside = beside
        self._location = location
        self._statements = statements
        self._ours: TablesIdentity | None = None
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Any, _Manner] = WeakKeyDictionary()
        """The connections that lead to our tables."""

    def drive_blocking(self, raw: Any, steps: Steps[T]) -> T:  # noqa: D102 - see `Callers`
        with self._explained(raw):
            manner = self._manner(raw)
            if manner is None:
                manner = self._remember(raw, *self._run(raw, _look(), _Manner()))
            with drivers.whole(raw):
                return self._run(raw, steps, manner)

    async def drive(self, raw: Any, steps: Steps[T]) -> T:  # noqa: D102
        with self._explained(raw):
            manner = self._manner(raw)
            if manner is None:
                found = await self._run_async(raw, _look(), _Manner())
                manner = await in_own_thread(lambda: self._remember(raw, *found))
            async with drivers.whole_async(raw):
                return await self._run_async(raw, steps, manner)

    def _manner(self, raw: Any) -> _Manner | None:
        with self._lock:
            return self._known.get(raw)

    def _remember(self, raw: Any, found: TablesIdentity, manner: _Manner) -> _Manner:
        """Remember how a connection is asked; raise `ConfigError` unless it leads to our tables."""
        if found != self._ours:
            self._ours = self._ask()
            if found != self._ours:
                other = " of a different server" if found.server != self._ours.server else ""
                message = (
                    f"the connection given as using= leads to the database {found.database!r}{other}, not to the "
                    f"tables of {self._location.url}"
                )
                raise ConfigError(message)
        with self._lock:
            self._known[raw] = manner
        return manner

    def _ask(self) -> TablesIdentity:
        connection = connect_blocking(self._location)
        try:
            identity, _ = drive_blocking(connection, Session(self._statements), _look(), Ready())
        except DriverError as error:
            raise translate(error, self._location.url, broken=False) from error
        finally:
            drop(connection)
        return identity

    @contextmanager
    def _explained(self, raw: Any) -> Generator[None]:
        try:
            with drivers.as_ours():
                yield
        except DriverError as error:
            broken, database = not drivers.is_open(raw), self._location.database
            raise translate(error, "the caller's connection", broken=broken, database=database) from error

    def _run(self, raw: Any, steps: Steps[T], manner: _Manner) -> T:
        session = _CallersSession(self._statements, manner.prefix, self._beside)

        def ask(texts: list[str]) -> list[Result]:
            with drivers.as_ours():
                return [drivers.ask(raw, *bound, manner.longest) for bound in session.bound(texts)]

        return exchange_blocking(session.messages(steps, Ready()), ask)

    async def _run_async(self, raw: Any, steps: Steps[T], manner: _Manner) -> T:
        session = _CallersSession(self._statements, manner.prefix, self._beside)

        async def ask(texts: list[str]) -> list[Result]:
            with drivers.as_ours():
                return [await drivers.ask_async(raw, *bound, manner.longest) for bound in session.bound(texts)]

        return await exchange(session.messages(steps, Ready()), ask)


class _CallersSession(Session):
    """Text parameters are bound by the driver."""

    def __init__(self, statements: MysqlStatements, prefix: str, beside: AskBeside) -> None:
        super().__init__(statements, beside=beside)
        self._prefix = prefix
        self._texts: list[str] = []

    def place(self, text: str) -> str:
        """Keep a text parameter; return its placeholder."""
        self._texts.append(text)
        return "\0"

    def bound(self, texts: Sequence[str]) -> Generator[tuple[str, tuple[str, ...]]]:
        """Yield each statement with its texts."""
        for text in texts:
            count = text.count("\0")
            given, self._texts = self._texts[:count], self._texts[count:]
            yield self._prefix + text.replace("%", "%%").replace("\0", "%s"), tuple(given)
