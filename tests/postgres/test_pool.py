"""Connections that are kept: as they were for each who is lent one, and not longer than whoever uses them."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncClientCursor, ClientCursor
from psycopg.rows import dict_row
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.connecting import drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.pool import blocking_pool, pools_for_handlers, pools_for_verbs
from holdfast.errors import SchemaMismatch, StoreUnavailable, TransactionExpired
from holdfast.store import connection_pool as pool
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job, claim, enqueue, hold_one
from holdfast.testing.stores import open_store

LIMIT = timedelta(seconds=10)
SHORT = timedelta(milliseconds=200)


class _Emptied(list[Any]):
    """A list that another thread empties between any look at it and the next."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return 1


async def test_a_pool_that_another_thread_empties_meanwhile_opens_a_connection(url: str):
    emptied = pools_for_verbs(PostgresLocation.parse(url)).here
    emptied._idle = _Emptied()
    connection = await emptied.take()
    assert not connection.closed
    emptied.drop_idle()
    drop(connection)


async def test_what_a_handler_sets_on_its_connection_is_not_there_for_the_next(url: str):
    pools = pools_for_handlers(PostgresLocation.parse(url))
    async with pools.here.connection() as first:
        before = first.row_factory, first.cursor_factory, first.prepare_threshold
        first.row_factory, first.cursor_factory, first.prepare_threshold = dict_row, AsyncClientCursor, 0
    async with pools.here.connection() as second:
        assert second is first
        assert (second.row_factory, second.cursor_factory, second.prepare_threshold) == before
        assert await (await second.execute("select 1")).fetchone() == (1,)
    pools.close()


def test_what_a_handler_in_a_thread_sets_on_its_connection_is_not_there_for_the_next(url: str):
    blocking = blocking_pool(PostgresLocation.parse(url))
    with blocking.connection() as first:
        before = first.row_factory, first.cursor_factory, first.prepare_threshold
        first.row_factory, first.cursor_factory, first.prepare_threshold = dict_row, ClientCursor, 0
    with blocking.connection() as second:
        assert second is first
        assert (second.row_factory, second.cursor_factory, second.prepare_threshold) == before
        assert second.execute("select 1").fetchone() == (1,)
    blocking.close()


def test_connections_of_an_event_loop_that_has_ended_are_closed_when_another_needs_some(url: str):
    pools = pools_for_handlers(PostgresLocation.parse(f"{url}&pool=1"))

    async def contend() -> psycopg.AsyncConnection[Any]:
        connection = await pools.here.take()
        waiting = asyncio.create_task(pools.here.take())
        await asyncio.sleep(0)  # from here on the pool knows its loop, and so keeps it alive
        pools.here.put(connection)
        pools.here.put(await waiting)
        return connection

    connections = [asyncio.run(contend())]
    assert [connection.closed for connection in connections] == [False]
    connections.append(asyncio.run(contend()))
    assert [connection.closed for connection in connections] == [True, False]
    pools.close()


async def test_who_finds_no_connection_free_is_told_which_of_them_were_in_use(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pool, "_SLOT_TIMEOUT", 0.1)
    location = PostgresLocation.parse(f"{url}&pool=1")
    for pools, whose in (
        (pools_for_verbs(location), "all connections for calls in one event loop"),
        (pools_for_handlers(location), "all connections for transactions of async handlers in one event loop"),
    ):
        async with pools.here.connection():
            with pytest.raises(StoreUnavailable, match=whose):
                await pools.here.take()
        pools.close()


def _sessions(url: str, name: str) -> set[int]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        query = "select pid from pg_stat_activity where application_name = %s"
        return {pid for (pid,) in connection.execute(query, (name,))}


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_a_transaction_that_expires_costs_no_connection_but_its_own(url: str, blocking: bool):
    name = f"expires_{secrets.token_hex(4)}"
    async with open_store(f"{url}&application_name={name}") as backend:
        job = await hold_one(backend)
        before = _sessions(url, name)

        def handler() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=SHORT) as transaction:
                transaction.connection.execute("select pg_sleep(30)")

        with pytest.raises(TransactionExpired):
            if blocking:
                await asyncio.to_thread(handler)
            async with backend.transactions.begin(job.lease, limit=SHORT) as transaction:
                await transaction.connection.execute("select pg_sleep(30)")
        assert before
        assert _sessions(url, name) >= before


def _execute(url: str, statement: str, *parameters: object) -> None:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        connection.execute(statement.encode(), parameters or None)


async def test_lanes_are_looked_up_again_after_connections_broke(url: str):
    """The server behind the new ones may be a standby that had not yet heard of them."""
    name = f"fails_over_{secrets.token_hex(4)}"
    async with open_store(f"{url}&application_name={name}") as backend:
        await enqueue(backend, a_job())
        for pid in _sessions(url, name):
            _execute(url, "select pg_terminate_backend(%s, 5000)", pid)
        _execute(url, f"truncate {parts_of(url)[1]}.lane")
        jobs = await enqueue(backend, a_job())
        assert [job.id for job in await claim(backend)] == jobs


async def test_lanes_are_looked_up_again_after_the_tables_were_missing(backend: Backend, url: str):
    await enqueue(backend, a_job(queue="other"))
    await enqueue(backend, a_job())
    _execute(url, f"drop schema {parts_of(url)[1]} cascade")
    with pytest.raises(SchemaMismatch):
        await backend.jobs.enqueue([a_job()])
    await backend.schema.install()
    jobs = await enqueue(backend, a_job())
    assert [job.id for job in await claim(backend)] == jobs
