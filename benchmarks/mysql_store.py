"""MySQL and MariaDB for benchmarks: a database of its own for each measurement, on the server that the URL names."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import pymysql

from benchmarks.raw import mysql as raw_mysql
from benchmarks.stores import COUNTS, Held, Inserter, Place, UnknownStoreError, UnreachableError, Yardstick

_NOW = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
_SPAN = "select max(finished_at) - min(started_at) from holdfast_completed where started_at >= %s"
_SPENT = {
    "Innodb_os_log_written": "wal",
    "Innodb_row_lock_waits": "lock_waits",
    "Innodb_deadlocks": "deadlocks",  # of MariaDB alone
    "Com_commit": "commits",
}
_STATUS = f"show global status where variable_name in {tuple(_SPENT)}"


class MysqlStore:
    """Databases on one server."""

    name = "mysql"
    raw: Yardstick = raw_mysql

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.query:
            message = f"benchmarks on MySQL take a plain URL over TCP, mysql://user@host:port/, without ?{parts.query}"
            raise UnknownStoreError(message)
        self._server = urlunsplit(parts._replace(path="/"))

    def _connect(self) -> raw_mysql.Loop:
        return raw_mysql.connect_blocking(self._server)

    @property
    def version(self) -> str:
        try:
            connection = self._connect()
        except pymysql.MySQLError as error:
            message = f"the server cannot be reached: {error}"
            raise UnreachableError(message) from None
        settings = "select version(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog"
        with closing(connection):
            number, flush, has_log, sync = connection.execute(settings).fetchone()
        return f"{number} (flush at commit {flush}, binary log {'synced ' + str(sync) if has_log else 'off'})"

    @property
    def driver(self) -> str:
        return f"asyncmy {version('asyncmy')}, PyMySQL {version('PyMySQL')}"

    @contextmanager
    def fresh(self) -> Generator[Place]:
        with self.foreign() as url:
            yield Place(url, url)

    @contextmanager
    def foreign(self) -> Generator[str]:
        name = f"holdfast_bench_{secrets.token_hex(6)}"
        with closing(self._connect()) as connection:
            connection.execute(f"create database {name}")
        try:
            yield self._server + name
        finally:
            with closing(self._connect()) as connection:  # another one: the measurement may have taken long
                connection.execute(f"drop database {name}")

    def _row(self, place: Place, statement: str, values: tuple[object, ...] = ()) -> Any:
        with closing(raw_mysql.connect_blocking(place.raw)) as connection:
            return connection.execute(statement, values).fetchone()

    def held(self, place: Place) -> Held:
        return Held(*self._row(place, COUNTS))

    def span(self, place: Place, since: int = 0) -> float:
        (micros,) = self._row(place, _SPAN, (since,))
        return float(micros) / 1e6

    def now(self) -> int:
        with closing(self._connect()) as connection:
            (micros,) = connection.execute(_NOW).fetchone()
        return int(micros)

    def completed(self, place: Place) -> int:
        (count,) = self._row(place, "select count(*) from holdfast_completed")
        return int(count)

    @contextmanager
    def snapshot(self, place: Place) -> Generator[None]:
        with closing(raw_mysql.connect_blocking(place.raw)) as connection:
            connection.execute("set session transaction isolation level repeatable read")
            connection.execute("set session wait_timeout = 86400")
            connection.execute("start transaction with consistent snapshot")
            yield
            connection.rollback()

    @contextmanager
    def inserting(self, place: Place) -> Generator[Inserter]:
        raw_mysql.create(place.raw)
        with closing(raw_mysql.connect(place.raw)) as connection:
            bulk, one = partial(raw_mysql.bulk, connection), partial(raw_mysql.one, connection)
            yield Inserter(bulk, one, partial(raw_mysql.held, place.raw))

    @contextmanager
    def metered(self, place: Place) -> Generator[Callable[[], Mapping[str, float]]]:  # noqa: ARG002 - as the protocol
        spent: dict[str, float] = {}
        before = self._reading()
        yield lambda: spent
        spent.update({name: value - before[name] for name, value in self._reading().items()})

    def _reading(self) -> dict[str, float]:
        with closing(self._connect()) as connection:
            reading = {_SPENT[name]: float(value) for name, value in connection.execute(_STATUS).fetchall()}
            (file,) = connection.execute("select @@pid_file").fetchone()
        with suppress(OSError, ValueError, psutil.Error):  # it runs elsewhere, or hides
            times = psutil.Process(int(Path(file).read_text())).cpu_times()
            reading["server_cpu"] = times.user + times.system
        return reading
