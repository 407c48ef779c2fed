"""`using=` in blocking calls, on PostgreSQL: in the thread that calls, and over with it when that is interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from tests.servers.postgres import parts_of

from holdfast import App
from holdfast.app.tasks import TaskHandle

LIMIT = 20.0


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    with app.sync:
        yield app


@pytest.fixture
def charge(app: App) -> TaskHandle[..., Any]:
    @app.task(queue="charges")
    async def charge(order_id: int) -> None: ...

    return charge


class Watched(psycopg.Connection[Any]):
    """A connection that notes the threads in which it waits for the server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.threads: set[threading.Thread] = set()

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.add(threading.current_thread())
        return super().wait(*args, **kwargs)


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
def test_a_job_and_an_event_share_the_callers_transaction_and_thread(
    app: App, charge: TaskHandle[..., Any], url: str, commits: bool
):
    with Watched.connect(parts_of(url)[0]) as connection:
        charge.options(using=connection).sync.enqueue(order_id=8)
        app.sync.append("orders", stream="8", name="paid", using=connection)
        (connection.commit if commits else connection.rollback)()
        assert connection.threads == {threading.current_thread()}

    assert len(app.jobs.sync.list("ready", queue="charges").jobs) == commits
    assert [category.name for category in app.sync.categories()] == (["orders"] if commits else [])


class Server:
    """What the server says of this test's tables and sessions, seen from outside of them."""

    def __init__(self, watch: psycopg.Connection[Any]) -> None:
        self._watch = watch

    def until_one_waits(self, **where: object) -> None:
        """Wait until a lock is waited for; the server offers nothing to be woken by."""
        ask = "select count(*) from pg_locks where not granted and (pid = %(pid)s or relation = to_regclass(%(table)s))"
        until(lambda: self._watch.execute(ask, {"pid": None, "table": None, **where}).fetchone() != (0,))


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_being_interrupted() -> bool:
    """Return whether the main thread has cancelled its call and waits for its end."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_name != "interrupt":
        frame = frame.f_back
    return frame is not None


@contextmanager
def ctrl_c(when: Callable[[], None], then: Callable[[], object] = lambda: None) -> Generator[None]:
    """Press Ctrl-C, until it is noticed, after one thing and before another."""
    noticed = threading.Event()

    def handle(*_: object) -> None:
        noticed.set()
        raise KeyboardInterrupt

    def press() -> None:
        when()
        os.kill(os.getpid(), signal.SIGINT)
        while not noticed.wait(0.5):  # Python misses a signal that comes just before a thread begins to wait
            os.kill(os.getpid(), signal.SIGINT)
        then()

    before = signal.signal(signal.SIGINT, handle)
    finger = threading.Thread(target=press, name="finger")
    finger.start()
    try:
        yield
    finally:
        finger.join()
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(url: str) -> Iterator[Server]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as watch:
        yield Server(watch)


def test_ctrl_c_ends_a_statement_that_waits_so_that_the_callers_rollback_is_the_last_word(
    app: App, charge: TaskHandle[..., Any], url: str, server: Server
):
    with psycopg.connect(parts_of(url)[0]) as caller, psycopg.connect(parts_of(url)[0]) as rival:
        charge.options(using=rival, order_key="k").sync.enqueue(order_id=1)
        pid = caller.info.backend_pid
        with pytest.raises(KeyboardInterrupt), ctrl_c(lambda: server.until_one_waits(pid=pid)):
            charge.options(using=caller, order_key="k").sync.enqueue(order_id=2)

        assert caller.info.transaction_status is TransactionStatus.INERROR
        caller.rollback()
        rival.commit()
        assert charge.options(using=caller, order_key="k").sync.enqueue(order_id=3).created
        caller.commit()

    assert app.sync.drain("charges").completed == 2


def test_ctrl_c_ends_a_claim_that_waits_and_it_holds_nothing(
    app: App, charge: TaskHandle[..., Any], url: str, server: Server
):
    table = f"{parts_of(url)[1]}.ready"
    charge.sync.enqueue(order_id=1)
    with psycopg.connect(parts_of(url)[0]) as rival:
        rival.execute(f"lock table {table} in access exclusive mode".encode())

        def let_go() -> None:
            until(is_being_interrupted)
            rival.rollback()

        with pytest.raises(KeyboardInterrupt), ctrl_c(lambda: server.until_one_waits(table=table), let_go):
            app.sync.claim("charges")

    assert app.sync.leases() == []
    assert len(app.sync.claim("charges")) == 1
