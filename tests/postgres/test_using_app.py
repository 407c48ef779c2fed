"""`using=` as a program uses it: a worker that is woken, and handlers that complete in a transaction of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from django.db import connections, transaction
from tests.postgres.callers import django_alias
from tests.servers.postgres import parts_of

from holdfast import App, Context
from holdfast.worker.decision import Exit
from holdfast.worker.worker import Worker

LONG = 3600.0


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


async def _idle(worker: Worker, app: App) -> asyncio.Task[Exit]:
    """Run a worker until it has nothing to do and will not look again by itself."""
    running = asyncio.ensure_future(worker.run())
    job = await app.enqueue("note", order_id=0)
    await job.wait(timeout=20)
    return running


@pytest.mark.parametrize("how", ["app.wake() after it", "NOTIFY inside it"])
async def test_a_worker_that_sleeps_is_woken_for_what_a_callers_transaction_has_brought(app: App, url: str, how: str):
    server, schema = parts_of(url)
    done = asyncio.Event()

    @app.task
    async def note(order_id: int) -> None:
        if order_id:
            done.set()

    worker = app.worker(poll_interval=LONG)
    running = await _idle(worker, app)
    with psycopg.connect(server) as connection:
        await note.options(using=connection).enqueue(order_id=1)
        if how == "NOTIFY inside it":
            connection.execute("select pg_notify(%s, '')", (f"holdfast_{schema}",))
    if how == "app.wake() after it":
        await app.wake()
    await asyncio.wait_for(done.wait(), 20)
    worker.stop()
    await running


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "forgotten"])
async def test_a_blocking_handler_completes_in_its_own_transaction(app: App, url: str, commits: bool):
    @app.task(max_attempts=1)
    def charge(ctx: Context, order_id: int) -> None:
        with psycopg.connect(parts_of(url)[0], autocommit=False) as connection:
            ctx.sync.complete(order_id, using=connection)
            if not commits:
                connection.rollback()

    job = await charge.enqueue(order_id=7)
    await app.drain("default")
    details = await app.jobs.show(job.id)
    assert details.job.state == ("completed" if commits else "failed")
    assert commits or "not committed" in str(details.job.reason)


async def test_a_handler_completes_and_enqueues_what_follows_in_a_django_transaction(app: App, url: str):
    alias = django_alias(parts_of(url)[0])

    @app.task(queue="later")
    def ship(order_id: int) -> None: ...

    @app.task
    def charge(ctx: Context, order_id: int) -> None:
        try:
            with transaction.atomic(using=alias):
                ship.options(using=connections[alias]).sync.enqueue(order_id=order_id)
                ctx.sync.complete(order_id, using=connections[alias])
        finally:
            connections[alias].close()

    job = await charge.enqueue(order_id=7)
    await app.drain("default")
    assert (await app.jobs.show(job.id)).job.state == "completed"
    assert (await app.drain("later")).completed == 1
