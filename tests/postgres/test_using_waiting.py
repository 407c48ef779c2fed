"""`using=` on a blocking connection: whoever waits for a lock takes nothing that its holder needs to go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast import App
from holdfast.app.tasks import TaskHandle
from holdfast.concurrency import statement_threads
from holdfast.concurrency.caller_thread import calling_thread

T = TypeVar("T")
LIMIT = 20.0
JOB_ID = "0192f0c1-2ab3-7cde-8f01-23456789abcd"


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    with app.sync:
        app.portal.call(_leave_one_thread())
        yield app


async def _leave_one_thread() -> None:
    """Give the loop a pool of one thread for what it runs elsewhere: however many there are, waiters can take them."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


@pytest.fixture
def send(app: App) -> TaskHandle[..., Any]:
    @app.task
    async def send(n: int) -> None: ...

    return send


class Callers:
    """Two connections: one that takes a lock, and one that waits for it."""

    def __init__(self, server: str, stack: ExitStack) -> None:
        self._watch = stack.enter_context(psycopg.connect(server, autocommit=True))
        # Closed first if a test fails: then the other goes on, and with it the threads of the test.
        self.waiter = stack.enter_context(psycopg.connect(server))
        self.holder = stack.enter_context(psycopg.connect(server))

    def is_waiting(self, connection: psycopg.Connection[Any]) -> bool:
        ask = "select count(*) from pg_locks where not granted and pid = %s"
        return self._watch.execute(ask, (connection.info.backend_pid,)).fetchone() == (1,)

    def until_one_waits(self) -> None:
        """Wait until the server says that somebody waits; it offers nothing to be woken by."""
        end = time.monotonic() + LIMIT
        while not self.is_waiting(self.waiter):
            assert time.monotonic() < end, "nobody waits"
            time.sleep(0.01)


@pytest.fixture
def callers(url: str) -> Iterator[Callers]:
    with ExitStack() as stack:
        yield Callers(parts_of(url)[0], stack)


@contextmanager
def in_thread(function: Callable[[], T]) -> Generator[Future[T]]:
    """Call a function in a thread of its own, which ends with the block."""
    with ThreadPoolExecutor(1, "caller") as thread:
        yield thread.submit(function)


Verb = Callable[[App, TaskHandle[..., Any], psycopg.Connection[Any]], Any]


def _enqueue_in_order(app: App, send: TaskHandle[..., Any], connection: psycopg.Connection[Any]) -> Any:
    return send.options(using=connection, order_key="k").sync.enqueue(n=1)


def _enqueue_the_same(app: App, send: TaskHandle[..., Any], connection: psycopg.Connection[Any]) -> Any:
    return send.options(using=connection, job_id=JOB_ID).sync.enqueue(n=1)


def _append(app: App, send: TaskHandle[..., Any], connection: psycopg.Connection[Any]) -> Any:
    return app.sync.append("orders", stream="one", name="placed", using=connection)


@pytest.mark.parametrize(
    "verb", [_enqueue_in_order, _enqueue_the_same, _append], ids=["order key", "job id", "head of a partition"]
)
def test_a_blocking_caller_that_others_wait_for_goes_on(
    app: App, send: TaskHandle[..., Any], callers: Callers, verb: Verb
):
    app.sync.category("orders", partitions=1)
    verb(app, send, callers.holder)
    with in_thread(lambda: verb(app, send, callers.waiter)) as waits:
        callers.until_one_waits()

        def go_on() -> None:
            verb(app, send, callers.holder)
            callers.holder.commit()

        with in_thread(go_on) as goes_on:
            try:
                goes_on.result(LIMIT)
            finally:
                callers.holder.close()
        assert waits.result(LIMIT)
        callers.waiter.commit()


def test_a_handler_whose_transaction_others_wait_for_goes_on(app: App, send: TaskHandle[..., Any], url: str):
    app.sync.enqueue("send", n=1)
    app.sync.enqueue("send", n=2)
    jobs = app.sync.claim("default", 2)
    has_lock, may_commit = threading.Event(), threading.Event()
    pids: Future[int] = Future()

    def hold() -> None:
        with jobs[0].sync.context().sync.transaction():
            send.options(order_key="k", queue="later").sync.enqueue(n=3)
            has_lock.set()
            assert may_commit.wait(LIMIT)
            send.options(order_key="k", queue="later").sync.enqueue(n=4)

    def wait() -> None:
        with jobs[1].sync.context().sync.transaction() as connection:
            pids.set_result(connection.info.backend_pid)
            send.options(order_key="k", queue="later").sync.enqueue(n=5)

    with in_thread(hold) as holds:
        assert has_lock.wait(LIMIT)
        with in_thread(wait) as waits, psycopg.connect(parts_of(url)[0], autocommit=True) as watch:
            _until_waiting(watch, [pids.result(LIMIT)])
            may_commit.set()
            ended = _ended_soon([holds, waits])
    assert ended
    assert [holds.exception(), waits.exception()] == [None, None]
    assert len(app.jobs.sync.list("ready", queue="later").jobs) == 1  # one of three: they have one order key


def _until_waiting(watch: psycopg.Connection[Any], pids: Sequence[int]) -> None:
    end = time.monotonic() + LIMIT
    ask = "select count(*) from pg_locks where not granted and pid = any(%s)"
    while watch.execute(ask, (list(pids),)).fetchone() != (len(pids),):
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.01)


def _ended_soon(calls: Sequence[Future[None]]) -> bool:
    """Tell whether calls end long before a third of the lease: after that their transactions are rolled back anyway."""
    end = time.monotonic() + 5
    for call in calls:
        with suppress(TimeoutError):
            call.exception(max(0.0, end - time.monotonic()))
    return all(call.done() for call in calls)


async def test_an_async_caller_with_a_blocking_connection_goes_on_too(url: str, callers: Callers):
    await _leave_one_thread()
    async with App(url) as app:

        @app.task
        async def send(n: int) -> None: ...

        await send.options(using=callers.holder, order_key="k").enqueue(n=1)
        waits = asyncio.ensure_future(send.options(using=callers.waiter, order_key="k").enqueue(n=2))
        await statement_threads.in_own_thread(callers.until_one_waits)
        goes_on = asyncio.ensure_future(send.options(using=callers.holder, order_key="k").enqueue(n=3))
        done, _ = await asyncio.wait({goes_on}, timeout=5)
        (callers.holder.commit if done else callers.holder.close)()
        await asyncio.wait({goes_on, waits})
        assert done
        assert goes_on.result().created
        assert waits.result().created


async def test_an_async_connection_is_got_to_know_though_all_threads_of_the_pool_are_taken(url: str):
    await _leave_one_thread()
    let_go = threading.Event()
    async with App(url) as app, await psycopg.AsyncConnection.connect(parts_of(url)[0]) as connection:

        @app.task
        async def send(n: int) -> None: ...

        await app.opened()
        taken = asyncio.ensure_future(asyncio.to_thread(let_go.wait))
        enqueued = asyncio.ensure_future(send.options(using=connection).enqueue(n=1))
        done, _ = await asyncio.wait({enqueued}, timeout=5)
        let_go.set()
        await asyncio.wait({taken, enqueued})
        assert done
        assert enqueued.result().created


async def test_threads_are_kept_for_the_next_statement_and_end_when_there_is_none():
    seen = [await statement_threads.in_own_thread(threading.current_thread) for _ in range(5)]

    assert len(set(seen)) == 1
    await asyncio.to_thread(seen[0].join, LIMIT)
    assert not seen[0].is_alive()
    assert await statement_threads.in_own_thread(threading.current_thread) is not seen[0]


async def test_there_is_a_thread_for_each_however_many_wait():
    together = threading.Barrier(50)
    calls = [asyncio.ensure_future(statement_threads.in_own_thread(lambda: together.wait(LIMIT))) for _ in range(50)]

    assert sorted(await asyncio.gather(*calls)) == list(range(50))


async def test_an_error_in_a_thread_is_raised_where_it_is_awaited():
    with pytest.raises(ZeroDivisionError):
        await statement_threads.in_own_thread(lambda: 1 // 0)
    assert calling_thread() is None
    with pytest.raises(ZeroDivisionError):
        await statement_threads.where_it_may_wait(lambda: 1 // 0)


FORKS = """
import asyncio, os, threading, time
from holdfast.concurrency.statement_threads import in_own_thread

asyncio.run(in_own_thread(threading.get_ident))  # a thread is idle now
child = os.fork()
if child == 0:
    asyncio.run(asyncio.wait_for(in_own_thread(threading.get_ident), 5))
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_begins_threads_of_its_own():
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    subprocess.run(program, check=True, timeout=LIMIT)
