"""What the tests with real processes need of a store, whichever it is."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import Connection, sql
from tests.servers.postgres import server_url
from tests.servers.redis import connection_of, drop_store, new_store_url

from holdfast.torture.target.redis_query import RedisQuery

_MISPLACED = """
select seq from holdfast.job full join (
    select seq from holdfast.ready union all select seq from holdfast.scheduled
    union all select seq from holdfast.blocked
    union all select seq from holdfast.running union all select seq from holdfast.completed
    union all select seq from holdfast.failed union all select seq from holdfast.cancelled
) as placed using (seq)
group by seq having count(placed.seq) <> 1 or bool_or(holdfast.job.id is null)
"""
_HEADS = """
select lane.queue, job.order_key, job.seq from (
    select seq from {0}ready union all select seq from {0}scheduled union all select seq from {0}running
) as placed join {0}job as job on job.seq = placed.seq join {0}lane as lane on lane.lane_id = job.lane_id
where job.order_key is not null order by 3
"""
_LINES = "select queue, order_key, head_seq from {0}key_head order by head_seq"
_STRANDED = "select seq from {0}blocked where key_id not in (select key_id from {0}key_head)"


def check_lines(execute: Callable[[str], Any], prefix: str) -> None:
    """Of each order_key one job lies outside of blocked, its line knows which, and nobody waits in no line."""
    heads, lines, stranded = (execute(text.format(prefix)).fetchall() for text in (_HEADS, _LINES, _STRANDED))
    assert heads == lines
    assert stranded == []


class Effect(NamedTuple):
    """A row of the table `effect`, which has no unique constraint."""

    job_id: str
    attempt: int
    fence: int
    pid: int


class Store(Protocol):
    """A store of its own for each test."""

    url: str
    lease: float
    """Seconds; as short as the store allows on a busy machine."""
    one_writer: bool
    """Whether an open transaction keeps every other writer of the store waiting."""
    sends_commit_with_completion: bool
    """Whether an async handler's transaction has ended as soon as the completion is written."""

    def effects(self) -> list[Effect]:
        """Return all effects that were committed."""
        ...

    def check(self) -> None:
        """Let the store look at its own integrity."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keep every writer waiting, by this process."""
        ...

    def close(self) -> None:
        """Remove the store."""
        ...


class SqliteStore:
    """A database file."""

    lease = 1.0
    one_writer = True
    sends_commit_with_completion = False

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        with self._connected() as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table effect (job_id text, attempt integer, fence integer, pid integer)")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=20)) as connection:
            yield connection

    def effects(self) -> list[Effect]:
        with self._connected() as connection:
            return [Effect(*row) for row in connection.execute("select job_id, attempt, fence, pid from effect")]

    def check(self) -> None:
        with self._connected() as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            check_lines(connection.execute, "holdfast_")

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._connected() as connection:
            connection.execute("begin immediate")
            yield
            connection.execute("rollback")

    def close(self) -> None:
        """The file goes with the folder of the test."""


class PostgresStore:
    """A database of its own on the server of the run, or on another."""

    lease = 1.0
    one_writer = False
    sends_commit_with_completion = True

    def __init__(self, server: str | None = None) -> None:
        self._server = server or server_url()
        self._name = f"test_{secrets.token_hex(6)}"
        self.url = urlunsplit(urlsplit(self._server)._replace(path=f"/{self._name}"))
        with self._connected(self._server) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(self._name)))
        with self._connected(self.url) as connection:
            connection.execute("create table effect (job_id text, attempt integer, fence bigint, pid integer)")

    @contextmanager
    def _connected(self, url: str) -> Iterator[Connection[Any]]:
        with psycopg.connect(url, autocommit=True, application_name="test") as connection:
            yield connection

    def effects(self) -> list[Effect]:
        with self._connected(self.url) as connection:
            return [Effect(*row) for row in connection.execute("select job_id, attempt, fence, pid from effect")]

    def check(self) -> None:
        """No job is in two states, and none in no state."""
        with self._connected(self.url) as connection:
            assert connection.execute(_MISPLACED).fetchall() == []
            check_lines(connection.execute, "holdfast.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._connected(self.url) as connection, connection.transaction(force_rollback=True):
            connection.execute("lock table holdfast.job, holdfast.running, holdfast.worker in exclusive mode")
            yield

    def close(self) -> None:
        with self._connected(self._server) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(self._name)))


class RedisStore:
    """A store of its own on the Valkey of the tests; its effects are a list in the hash slot of the store."""

    lease = 1.0
    one_writer = False
    sends_commit_with_completion = False

    def __init__(self) -> None:
        self.url = new_store_url("valkey")
        self._client: Any = connection_of(self.url)
        self._prefix = f"{{holdfast:{self.url.partition('name=')[2]}}}:"

    def effects(self) -> list[Effect]:
        rows = self._client.lrange(f"{self._prefix[:-1]}/effect", 0, -1)
        return [Effect(job_id, *map(int, rest)) for job_id, *rest in (row.decode().split() for row in rows)]

    def check(self) -> None:
        """Each job is in the set of its state, and in no other."""
        assert RedisQuery(self._client, self._prefix.encode()).misplaced() == []

    def locked(self) -> AbstractContextManager[None]:
        raise NotImplementedError  # there is nothing to lock

    def close(self) -> None:
        drop_store(self.url)
