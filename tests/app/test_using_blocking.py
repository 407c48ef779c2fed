"""`using=` in blocking calls, on SQLite: a connection belongs to the thread that made it, and is used there alone."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.app.work import connected

from holdfast import App, ConfigError, Context, JobState, VersionConflict
from holdfast.app.tasks import TaskHandle

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "effect-once.md").read_text(encoding="utf-8")
(OWN_TRANSACTION,) = re.findall(r"^```python\n(connection = .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(ENQUEUE,) = re.findall(r"`(charge\.options\(using=connection\)\.sync\.enqueue\(…\))`", PAGE)
(APPEND,) = re.findall(r"`(app\.sync\.append\(…, using=connection\))`", PAGE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


@pytest.fixture
def app(path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{path}?synchronous=normal")
    with app.sync:
        with connected(path) as connection:
            connection.execute("create table payment (order_id integer, receipt text)")
        yield app


@pytest.fixture
def charge(app: App) -> TaskHandle[..., Any]:
    @app.task(queue="charges")
    async def charge(order_id: int) -> None: ...

    return charge


def payments(path: Path) -> list[tuple[int, str]]:
    with connected(path) as connection:
        return connection.execute("select * from payment").fetchall()


def run_page(path: Path, text: str, **names: Any) -> None:
    """Run lines of the page, on the file of this test."""
    exec(text.replace('"orders.db"', repr(str(path))), {"sqlite3": sqlite3, **names})  # noqa: S102 - our own page


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_documented_lines_complete_enqueue_and_append_in_the_callers_transaction(
    app: App, charge: TaskHandle[..., Any], path: Path, end: str
):
    enqueue = ENQUEUE.replace("…", "order_id=8")
    append = APPEND.replace("…", "'orders', stream='8', name='paid'")
    *begin, commit = OWN_TRANSACTION.splitlines()
    lines = "\n".join([*begin, enqueue, append, commit.replace("commit", end)])

    @app.task(max_attempts=1)
    def pay(ctx: Context, order_id: int) -> None:
        run_page(path, lines, ctx=ctx, app=app, charge=charge, order_id=order_id, receipt="paid")

    job = pay.sync.enqueue(order_id=7)
    app.sync.drain("default")

    committed = end == "commit"
    assert job.sync.state() is (JobState.COMPLETED if committed else JobState.FAILED)
    assert payments(path) == ([(7, "paid")] if committed else [])
    assert len(app.jobs.sync.list("ready", queue="charges").jobs) == committed
    assert [category.name for category in app.sync.categories()] == (["orders"] if committed else [])


def test_many_threads_each_use_a_connection_of_their_own(app: App, charge: TaskHandle[..., Any], path: Path):
    def pay(order_id: int) -> None:
        with connected(path) as connection:
            connection.execute("begin immediate")
            charge.options(using=connection).sync.enqueue_many([{"order_id": order_id}] * 3)
            app.sync.append("orders", stream="all", name="paid", using=connection)
            connection.execute("commit")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(pay, range(24)))

    assert app.sync.drain("charges").completed == 72
    assert len(app.sync.read("orders", stream="all").events) == 24


def test_an_error_leaves_the_callers_transaction_as_it_was(app: App, charge: TaskHandle[..., Any], path: Path):
    with connected(path) as connection:
        connection.execute("begin immediate")
        connection.execute("insert into payment values (7, 'paid')")
        with pytest.raises(VersionConflict):
            app.sync.append("orders", stream="7", name="paid", expected_version=5, using=connection)
        charge.options(using=connection).sync.enqueue(order_id=7)
        connection.execute("commit")

    assert payments(path) == [(7, "paid")]
    assert len(app.jobs.sync.list("ready", queue="charges").jobs) == 1


def test_what_is_no_transaction_of_this_store_is_refused_in_blocking_calls_too(
    app: App, charge: TaskHandle[..., Any], path: Path, tmp_path: Path
):
    with connected(path) as connection, pytest.raises(ConfigError, match=r"execute\('begin immediate'\) first"):
        charge.options(using=connection).sync.enqueue(order_id=7)
    with pytest.raises(ConfigError, match="closed"):
        charge.options(using=connection).sync.enqueue(order_id=7)
    with connected(tmp_path / "other.db") as connection:
        connection.execute("begin immediate")
        with pytest.raises(ConfigError, match=r"is open on '.*other\.db', not on"):
            charge.options(using=connection).sync.enqueue(order_id=7)


def test_a_connection_of_another_thread_is_refused_with_the_remedy(app: App, charge: TaskHandle[..., Any], path: Path):
    remedy = "opened in another thread: make the call in the thread that opened the connection"
    with connected(path) as connection:
        connection.execute("begin immediate")
        with ThreadPoolExecutor(1) as thread, pytest.raises(ConfigError, match=remedy):
            thread.submit(lambda: charge.options(using=connection).sync.enqueue(order_id=7)).result()
        with ThreadPoolExecutor(1) as thread, pytest.raises(ConfigError, match=remedy):
            thread.submit(lambda: asyncio.run(charge.options(using=connection).enqueue(order_id=7))).result()


def test_handlers_that_a_blocking_call_runs_use_connections_of_their_own_thread(
    app: App, charge: TaskHandle[..., Any], path: Path
):
    """An async handler runs in the thread of the loop, though the thread of the call waits for all that."""
    seen: set[str] = set()

    @app.task
    async def pay(order_id: int) -> None:
        await asyncio.sleep(0)
        with connected(path) as connection:
            connection.execute("begin immediate")
            await charge.options(using=connection).enqueue(order_id=order_id)
            seen.add(threading.current_thread().name)
            connection.execute("commit")

    @app.task
    def pay_in_thread(order_id: int) -> None:
        with connected(path) as connection:
            connection.execute("begin immediate")
            charge.options(using=connection).sync.enqueue(order_id=order_id)
            connection.execute("commit")

    for task in (pay, pay_in_thread):  # one after the other: waiting for the write lock, the first stops the loop
        job = task.sync.enqueue(order_id=1)
        app.sync.drain("default")
        assert job.sync.state() is JobState.COMPLETED
    assert len(app.jobs.sync.list("ready", queue="charges").jobs) == 2
    assert seen == {"holdfast-sync"}
