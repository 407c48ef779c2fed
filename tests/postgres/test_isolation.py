"""A database whose default is serializable, and handlers that conflict: every effect once, no attempt used up."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from tests.app.stream_work import drained, eventually, running
from tests.app.work import run_all
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, server_url

from holdfast import App, ConfigError, Context, JobState, Snooze, Timing, TransactionConflict
from holdfast.model.isolation import MAX_CONFLICTS
from holdfast.testing.conformance.base import a_job, claim
from holdfast.testing.stores import open_store

SERIALIZABLE: Final = "serializable"


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a throw-away database with a serializable default."""
    try:
        server = server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    name = f"strict_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as owner:
        owner.execute(f"create database {name}".encode())
        owner.execute(f"alter database {name} set default_transaction_isolation = serializable".encode())
        try:
            yield _of_database(server, name)
        finally:
            owner.execute(f"drop database {name} with (force)".encode())


def _of_database(server: str, name: str) -> str:
    head, _, options = server.partition("?")
    return f"{head.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")


@pytest.fixture
def ask(database: str) -> Iterator[Any]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield lambda sql: connection.execute(sql).fetchall()


@pytest.fixture
async def conflicting(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module of the tasks, on this database; `isolation` is that of its transactions."""
    from tests.postgres import conflicting_app as module

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(module.TABLES)

    app = App(database)

    def on(isolation: str) -> tuple[App, Any]:
        monkeypatch.setenv("CONFLICTING_URL", database)
        monkeypatch.setenv("CONFLICTING_ISOLATION", isolation)
        monkeypatch.setattr(module, "LEVEL", isolation)
        for handle in (module.in_loop, module.in_thread, module.in_process):
            app.tasks.add(handle.task)
        for name in ("billing", "billing-process"):
            app.subscribed.add(module.app.subscribed.get(name))
        return app, module

    yield on
    await app.close()


@pytest.mark.parametrize("isolation", ["read committed", SERIALIZABLE])
@pytest.mark.parametrize("where", ["in_loop", "in_thread", pytest.param("in_process", marks=pytest.mark.slow)])
async def test_every_job_completes_and_every_effect_is_written_once(conflicting: Any, ask: Any, isolation, where):
    app, module = conflicting(isolation)
    task = getattr(module, where).task
    jobs = await asyncio.gather(*(app.enqueue(task.name) for _ in range(60)))
    is_in_process = where == "in_process"
    await asyncio.wait_for(app.worker(until_empty=True, concurrency=3 if is_in_process else 8).run(), 50)
    assert {await job.state() for job in jobs} == {JobState.COMPLETED}
    assert {await job.result() for job in jobs} == {1}, "no attempt was counted"
    assert ask("select n from total") == [(60,)]
    assert ask("select count(*), count(distinct job_id) from effect") == [(60, 60)]


@pytest.mark.parametrize("isolation", ["read committed", SERIALIZABLE])
@pytest.mark.parametrize("name", ["billing", pytest.param("billing-process", marks=pytest.mark.slow)])
async def test_every_event_is_handled_and_its_effect_is_written_once(conflicting: Any, ask: Any, isolation, name):
    app, _ = conflicting(isolation)
    await app.category("orders", partitions=4)
    await app.append_many("orders", [{"stream": f"s{n % 8}", "name": "placed", "payload": n} for n in range(60)])
    node = app.node(timing=Timing().scaled(0.1))
    node._consumers = {name: app.subscribed.get(name)}
    async with running(node):
        await eventually(drained(app, name))
    assert ask("select n from total") == [(60,)]
    assert ask("select count(*), count(distinct job_id) from effect") == [(60, 60)]


async def conflict_in(connection: Any, database: str) -> None:
    """Make the open serializable transaction of a handler conflict with a change that is committed meanwhile."""
    await connection.execute("select n from total")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
        await other.execute("update total set n = n + 1")
    await connection.execute("update total set n = n + 1")


@pytest.fixture
async def app(database: str, ask: Any):
    app = App(database)
    await app.opened()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table total (n integer not null); insert into total values (0)")
    yield app
    await app.close()


async def test_a_conflict_that_the_handler_has_caught_is_a_conflict_all_the_same(app: App, ask: Any, database: str):
    calls: list[int] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        calls.append(ctx.job.attempt)
        async with ctx.transaction(isolation=SERIALIZABLE) as connection:
            if len(calls) == 1:
                with pytest.raises(psycopg.errors.SerializationFailure):
                    await conflict_in(connection, database)
            elif len(calls) == 2:
                with pytest.raises(psycopg.errors.SerializationFailure):
                    await conflict_in(connection, database)
                raise ValueError("made of a conflict")

    job = await pay.enqueue()
    await run_all(app)
    assert await job.state() is JobState.COMPLETED
    assert calls == [1, 1, 1]
    assert (await app.jobs.show(job.id)).attempts == []


async def test_a_handler_that_ends_its_attempt_on_purpose_after_a_conflict_ends_it(app: App, database: str):
    calls: list[int] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        calls.append(ctx.job.attempt)
        if len(calls) == 1:
            async with ctx.transaction(isolation=SERIALIZABLE) as connection:
                try:
                    await conflict_in(connection, database)
                except psycopg.errors.SerializationFailure:
                    raise Snooze(0.01) from None

    job = await pay.enqueue()
    await run_all(app)
    assert await job.state() is JobState.COMPLETED
    assert calls == [1, 2]


async def test_after_too_many_conflicts_the_attempt_has_failed(app: App, database: str, monkeypatch):
    monkeypatch.setattr("holdfast.model.isolation._LONGEST_PAUSE", 0.001)
    calls: list[int] = []

    @app.task(max_attempts=2, retry=0.01)
    async def pay(ctx: Context) -> None:
        calls.append(ctx.job.attempt)
        async with ctx.transaction(isolation=SERIALIZABLE) as connection:
            await conflict_in(connection, database)

    job = await pay.enqueue()
    await run_all(app)
    assert await job.state() is JobState.FAILED
    assert calls == [1] * (MAX_CONFLICTS + 1) + [2] * (MAX_CONFLICTS + 1)
    (first, _) = (await app.jobs.show(job.id)).attempts
    assert first.error_class == "holdfast.errors.TransactionConflict"


async def test_a_result_that_a_repeated_handler_does_not_set_again_is_gone(app: App, database: str):
    calls: list[int] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        calls.append(1)
        async with ctx.transaction(isolation=SERIALIZABLE) as connection:
            if len(calls) == 1:
                ctx.result = "of the first run"
                await conflict_in(connection, database)

    job = await pay.enqueue()
    await run_all(app)
    assert len(calls) == 2
    assert await app.job(job.id).result() is None


async def test_a_conflict_after_the_completion_is_only_logged(app: App, caplog):
    calls: list[int] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        calls.append(1)
        async with ctx.transaction():
            pass
        raise TransactionConflict("of another transaction")

    job = await pay.enqueue()
    await run_all(app)
    assert await job.state() is JobState.COMPLETED
    assert calls == [1]
    assert "then its handler raised" in caplog.text


async def test_deadlocks_are_repeated(app: App, ask: Any):
    """Two jobs lock two rows in opposite order, and wait for one another once."""
    ask("insert into total values (1000) returning n")
    both = asyncio.Barrier(2)
    calls: list[str] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context, first: int) -> None:
        calls.append(ctx.job.id)
        async with ctx.transaction() as connection:
            for number in (first, 1000 - first):
                where = "n < 500" if number == 0 else "n >= 500"
                await connection.execute(f"update total set n = n + 1 where {where}")  # noqa: S608 - our words
                if len(calls) <= 2 and number == first:
                    await both.wait()

    jobs = [await pay.enqueue(0), await pay.enqueue(1000)]
    await run_all(app, concurrency=2)
    assert {await job.state() for job in jobs} == {JobState.COMPLETED}
    assert len(calls) >= 3
    assert sorted(ask("select n from total")) == [(2,), (1002,)]


async def test_a_batch_has_its_level_and_says_that_it_conflicted(app: App, ask: Any, database: str):
    @app.task
    async def pay() -> None: ...

    await pay.enqueue_many([{}, {}])
    jobs = await app.claim("default", 2)
    level = "select current_setting('transaction_isolation')"
    async with app.batch(jobs) as batch:
        assert await (await batch.connection.execute(level)).fetchone() == ("read committed",)
    with pytest.raises(TransactionConflict, match="in favour of another one"):
        async with app.batch(jobs, isolation=SERIALIZABLE) as batch:
            await conflict_in(batch.connection, database)
    async with app.batch(jobs, isolation=SERIALIZABLE) as batch:
        assert await (await batch.connection.execute(level)).fetchone() == (SERIALIZABLE,)
        for job in batch.held:
            batch.complete(job)
    assert [await app.job(job.id).state() for job in jobs] == [JobState.COMPLETED] * 2


async def test_an_unknown_level_is_refused(app: App):
    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        with pytest.raises(ConfigError, match="isolation='chaos' is not one of 'read committed'"):
            ctx.transaction(isolation="chaos")  # type: ignore[arg-type]

    job = await pay.enqueue()
    await run_all(app)
    assert await job.state() is JobState.COMPLETED


@pytest.mark.parametrize("way", ["direct", "never", "pooler"])
async def test_calls_outside_handlers_are_read_committed_too(database: str, way: str, tmp_path: Path):
    """Forty tasks that claim and finish at once would abort one another more often than a call is repeated."""
    if way == "pooler":
        try:
            with pooled(f"{database}?schema=holdfast", tmp_path) as url:
                await _claim_at_once(url)
        except NoServerError as error:
            give_up("PgBouncer", str(error))
    else:
        await _claim_at_once(f"{database}?prepare={'never' if way == 'never' else 'auto'}")


async def _claim_at_once(url: str) -> None:
    async with open_store(url) as backend:
        runner = backend._parts.here.runner  # type: ignore[attr-defined]
        pool = runner._pools.here
        connection = await pool.take()
        try:
            level = await connection.ask(b"select current_setting('transaction_isolation')", {})
        finally:
            pool.put(connection)
        assert level == [("read committed",)]
        await backend.jobs.enqueue([a_job() for _ in range(200)])
        hauls = await asyncio.gather(*(claim(backend, 10, worker_id=f"w{n}") for n in range(40)))
        assert len({job.id for haul in hauls for job in haul}) == sum(map(len, hauls)) == 200
