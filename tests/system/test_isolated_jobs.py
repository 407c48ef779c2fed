"""Jobs of whole apps in job children: the store that they find there, and what is around their handlers."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
from contextlib import closing

import pytest

from holdfast import App
from holdfast.model.job import JobState

pytestmark = pytest.mark.slow

SHOP = """
from __future__ import annotations
import asyncio, contextvars, os, threading
from holdfast import App, Context

os.chdir("/")  # as some program might: the place of the store is not to depend on it
app = App("sqlite:///{own}/own.db")
seen = contextvars.ContextVar("seen", default="nothing")

@app.task(executor="process", max_attempts=1)
async def pay(amount: int, ctx: Context) -> None:
    await note.enqueue(amount)
    async with ctx.transaction() as connection:
        await connection.execute("insert into payment (amount) values (?)", (amount,))

@app.task(max_attempts=1)
def pay_in_thread(amount: int, ctx: Context) -> None:
    with ctx.sync.transaction() as connection:
        connection.execute("insert into payment (amount) values (?)", (amount,))

@app.task
async def note(amount: int) -> None:
    pass

@app.task(executor="process", max_attempts=1)
async def durability() -> str:
    return app.backend.capabilities.durability

@app.task(max_attempts=1)
def ask_next(amount: int) -> str:
    note.sync.enqueue(amount)
    return threading.current_thread().name

@app.task(max_attempts=1)
def run_a_loop() -> int:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 7
    return asyncio.run(inner())

def by_call() -> int:
    return os.getpid()

app.task(max_attempts=1)(by_call)

@app.task(executor="process", max_attempts=1)
def set_variable() -> str:
    before = seen.get()
    seen.set("something")
    return before

@app.task(executor="process", max_attempts=1)
async def set_variable_async() -> str:
    return set_variable.task.handler()
"""

_numbers = iter(range(1000))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Make a module with an app whose own URL leads elsewhere, and return it."""
    name = f"isolated_shop_{next(_numbers)}"
    (tmp_path / "own").mkdir()
    (tmp_path / f"{name}.py").write_text(SHOP.format(own=tmp_path / "own"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module(name)
    del sys.modules[name]


@pytest.fixture
async def shop(module, tmp_path, monkeypatch):
    """Lead the app to another store, by a path that is relative to this directory, and open it."""
    monkeypatch.chdir(tmp_path)
    module.app.use("sqlite:///used.db?synchronous=normal")
    async with module.app:
        with closing(sqlite3.connect(tmp_path / "used.db")) as connection:
            connection.execute("create table payment (amount integer not null)")
            connection.commit()
        yield module


async def lose(app: App) -> None:
    """Have every job that waits be lost once, beside others."""
    claimed = await app.claim("default", 100, worker_id="dead")
    assert claimed
    await app.backend.jobs.rescue_worker("dead", "it has died", 100)


async def work(app: App) -> None:
    await app.worker(until_empty=True).run()


async def test_a_job_in_a_child_writes_to_the_store_that_its_worker_uses(shop, tmp_path):
    job = await shop.pay.enqueue(7)
    await work(shop.app)
    assert (await job.details()).job.state is JobState.COMPLETED
    with closing(sqlite3.connect(tmp_path / "used.db")) as connection:
        assert connection.execute("select amount from payment").fetchall() == [(7,)]
    assert len((await shop.app.jobs.list(task="note", state="completed")).jobs) == 1
    assert list((tmp_path / "own").iterdir()) == [], "the app's own store was opened, though another is used"


async def test_a_job_that_was_lost_once_completes_in_the_store_that_its_worker_uses(shop, tmp_path):
    job = await shop.pay_in_thread.enqueue(7)
    await lose(shop.app)
    await work(shop.app)
    assert (await job.details()).job.state is JobState.COMPLETED
    assert list((tmp_path / "own").iterdir()) == []


async def test_the_settings_of_the_workers_url_hold_in_a_child(shop):
    job = await shop.durability.enqueue()
    await work(shop.app)
    assert "synchronous=NORMAL" in (await job.details()).result


async def test_a_plain_handler_of_a_lost_job_may_use_blocking_calls_and_loops_of_its_own(shop):
    jobs = [await shop.ask_next.enqueue(7), await shop.run_a_loop.enqueue()]
    await lose(shop.app)
    await work(shop.app)
    assert [(await job.details()).result for job in jobs] == ['"MainThread"', "7"]


@pytest.mark.parametrize("name", ["set_variable", "set_variable_async"])
async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next_job_of_its_child(shop, name):
    jobs = [await getattr(shop, name).enqueue() for _ in range(3)]
    await shop.app.worker(until_empty=True, concurrency=1).run()
    assert [(await job.details()).result for job in jobs] == ['"nothing"'] * 3


async def test_a_lost_job_of_a_task_that_a_child_cannot_find_runs_beside_others(shop):
    job = await shop.app.enqueue("by_call")
    await lose(shop.app)
    await work(shop.app)
    assert await job.result() == os.getpid()
