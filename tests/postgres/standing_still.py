"""Clients that stand still in the middle of a transaction, and a view of their sessions from outside."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.errors import HoldfastError

T = TypeVar("T")
SOON = 10.0
REPLIES = "select repeat('x', 1000000) from generate_series(1, 100)"


def in_a_pipeline(connection: psycopg.Connection[Any]) -> None:
    connection.pgconn.enter_pipeline_mode()
    connection.pgconn.send_query_params(b"select 1", None)
    connection.pgconn.flush()


def in_a_copy(connection: psycopg.Connection[Any]) -> None:
    connection.execute("create temporary table noise (n integer) on commit drop")
    connection.pgconn.exec_(b"copy noise from stdin")
    connection.pgconn.put_copy_data(b"1\n" * 10_000)
    connection.pgconn.flush()


def in_a_statement(connection: psycopg.Connection[Any]) -> None:
    os.write(connection.pgconn.socket, b"Q\x00\x00\x10\x00select 'the rest of this was never sent")


def in_an_answer(connection: psycopg.Connection[Any]) -> None:
    connection.pgconn.send_query(REPLIES.encode())
    connection.pgconn.flush()


def between_statements(connection: psycopg.Connection[Any]) -> None:
    assert connection.pgconn.transaction_status == TransactionStatus.INTRANS


STANDING: dict[str, tuple[Callable[[psycopg.Connection[Any]], None], tuple[str, str]]] = {
    "pipeline": (in_a_pipeline, ("active", "ClientRead")),
    "copy": (in_a_copy, ("active", "ClientRead")),
    "half_sent": (in_a_statement, ("idle in transaction", "ClientRead")),
    "unread": (in_an_answer, ("active", "ClientWrite")),
    "idle": (between_statements, ("idle in transaction", "ClientRead")),
}
every_standing = pytest.mark.parametrize(
    "how", [how if how == "pipeline" else pytest.param(how, marks=pytest.mark.slow) for how in STANDING]
)


class Watch:
    """A connection that looks at the server from outside."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self.schema = schema

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def stands(self, pid: int) -> tuple[str, str] | None:
        found = self.execute(f"select state, wait_event from pg_stat_activity where pid = {pid}")  # noqa: S608 - a number
        return found[0] if found else None


@contextmanager
def frozen(opened: AbstractContextManager[Any], how: str, watch: Watch) -> Iterator[int]:
    """Open a transaction and stand still in it; return the number of its session."""
    stack, elsewhere = ExitStack(), copy_context()  # what the test calls meanwhile does not join it
    connection: psycopg.Connection[Any] = elsewhere.run(stack.enter_context, opened).connection
    row = connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    stand, seen = STANDING[how]
    stand(connection)
    try:
        _now(lambda: watch.stands(row[0]) == seen, f"the session stands as {seen}, not {watch.stands(row[0])}")
        yield row[0]
    finally:
        connection.pgconn.finish()
        with suppress(HoldfastError, psycopg.Error):
            elsewhere.run(stack.close)


def _now(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SOON
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


async def soon(ask: Callable[[], Awaitable[T]], *, within: float = SOON) -> T:
    """Ask until the answer is something, as those do who recover."""
    deadline = time.monotonic() + within
    while not (found := await ask()):
        assert time.monotonic() < deadline, "nothing was recovered"
        await asyncio.sleep(0.05)
    return found
