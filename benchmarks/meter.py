"""What a PostgreSQL server spends on a piece of work: WAL, commits, dead rows, and CPU time if it runs on this machine.

Everything is read from the server as a whole or from the database, so other work there is counted along.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import psutil
import psycopg

_WAL = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_COMMITS = "select xact_commit from pg_stat_database where datname = current_database()"
_DEAD = "select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables where schemaname = current_schema()"
_OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
_PATIENCE = 3.0
_LOOK_EVERY = 0.02


class Reading(NamedTuple):
    """The server's counters at one moment."""

    wal: float
    commits: float
    cpu: float | None


class Meter:
    """Counters from its making to `stop`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._server = _server(connection)
        self._spent: dict[str, float] = {}
        self._others = self._number(_OTHERS)
        self._before = self._read()

    def stop(self) -> None:
        """Read again, once the workers have ended: sessions report their counts when they end."""
        after = self._read()
        give_up = time.monotonic() + _PATIENCE
        while self._number(_OTHERS) > self._others and time.monotonic() < give_up:
            time.sleep(_LOOK_EVERY)
        commits = self._number(_COMMITS)
        self._spent = {"wal": after.wal - self._before.wal, "commits": commits - self._before.commits}
        self._spent["dead_rows"] = self._number(_DEAD)
        if after.cpu is not None and self._before.cpu is not None:
            self._spent["server_cpu"] = after.cpu - self._before.cpu

    def spent(self) -> Mapping[str, float]:
        """Return WAL in bytes, commits, dead rows that are left, and the server's CPU time in seconds."""
        return self._spent

    def _number(self, statement: str) -> float:
        (number,) = self._connection.execute(statement.encode()).fetchone() or (0,)
        return float(number)

    def _read(self) -> Reading:
        return Reading(self._number(_WAL), self._number(_COMMITS), _cpu(self._server))


def _server(connection: psycopg.Connection[Any]) -> psutil.Process | None:
    """Return the server's first process; None where it is not on this machine, or not to be seen from here."""
    try:
        backend = psutil.Process(connection.info.backend_pid)
        first = backend.parent()
        if first is None or "postgres" not in backend.name() or "postgres" not in first.name():
            return None
    except psutil.Error:
        return None
    return first


def _cpu(server: psutil.Process | None) -> float | None:
    """Return the CPU time of a server: its own, that of children that have ended, and that of those alive."""
    if server is None:
        return None
    own = server.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in server.children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)
