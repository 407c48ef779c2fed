"""A worker as a real process on a database of its own, and what it did, seen through connections that nobody harms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit, urlunsplit

import psycopg
from tests.system.harness import Ledger, Program, Workers
from tests.system.stores import PostgresStore

from holdfast.torture.proxy import Proxy

SESSIONS_OF_WORKERS = "from pg_stat_activity where application_name = 'worker' and datname = current_database()"


def with_settings(url: str, **settings: str) -> str:
    """Return a URL with these parameters besides those it has."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="&".join(filter(None, [parts.query, urlencode(settings)]))))


class _Way(PostgresStore):
    """The same store by another way."""

    def __init__(self, url: str) -> None:
        self.url = url


class Scene:
    """A store, a ledger on a way of its own, and one worker; `server` and `proxy` are where the faults are."""

    def __init__(self, server: str, *, proxy: Proxy | None = None, user: str | None = None) -> None:
        self.store = PostgresStore(server)
        self.plain_url = self.store.url
        parts = urlsplit(self.plain_url)
        around = parts if proxy is None else parts._replace(netloc=urlsplit(proxy.url).netloc)
        if user is not None:
            around = around._replace(netloc=f"{user}@{around.netloc.rpartition('@')[2]}")
        self.store.url = with_settings(self.plain_url, application_name="ledger")
        self.ledger = Ledger(self.store)
        self.workers = Workers(_Way(with_settings(urlunsplit(around), application_name="worker", reply_timeout="2")))
        self.jobs: list[str] = []

    def enqueue(self, count: int, task: str = "pay") -> None:
        """Enqueue so many jobs, to be accounted for in the end."""
        patient = {"max_attempts": 1000}  # an attempt that finds no server is a failed one
        self.jobs += self.ledger.enqueue_many(task, [{}] * count, patient)

    def worker(self, **settings: float) -> Program:
        """Start a worker, and see that it works."""
        self.enqueue(1)  # the tables are there from here on
        worker = self.workers.started(**settings)
        self.back(within=20.0)
        return worker

    def back(self, *, within: float) -> float:
        """See that a new job is done soon, by a worker that was not touched; return after how long."""
        began = time.monotonic()
        self.enqueue(1)
        self.ledger.completed(self.jobs[-1], within=within)
        return time.monotonic() - began

    def effects(self) -> int:
        return len(self.store.effects())

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.plain_url, autocommit=True, application_name="test") as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def once(self, worker: Program) -> None:
        """Every job is done, with one effect, and the worker is the same as in the beginning."""
        self.ledger.completed(*self.jobs, within=20.0)
        self.ledger.assert_once(self.jobs)
        assert worker.process.poll() is None, worker.text

    def close(self) -> None:
        self.workers.close()
        self.ledger.close()
        self.store.close()


@contextmanager
def scene_on(server: str, *, proxy: Proxy | None = None, user: str | None = None) -> Iterator[Scene]:
    scene = Scene(server, proxy=proxy, user=user)
    try:
        yield scene
    finally:
        scene.close()
