"""Ctrl-C, and whatever else a signal handler raises, in the middle of a blocking call: nothing goes on behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import App, ConfigError, JobState
from holdfast.app.portal import Portal
from holdfast.concurrency.caller_thread import CallingThread

LIMIT = 15.0
Press = Callable[[], None]


class OutOfPatienceError(Exception):
    """What a program raises from the handler of an alarm."""


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.sync.close()


@pytest.fixture(params=[KeyboardInterrupt, OutOfPatienceError])
def interrupt(request: pytest.FixtureRequest) -> type[BaseException]:
    raised: type[BaseException] = request.param
    return raised


@pytest.fixture
def press(interrupt: type[BaseException]) -> Iterator[Press]:
    """Press Ctrl-C until it is noticed; the main thread, in which tests run, raises the interrupt."""
    assert threading.current_thread() is threading.main_thread()
    noticed = threading.Event()

    def handle(*_: object) -> None:
        noticed.set()
        raise interrupt

    def press() -> None:
        noticed.clear()
        os.kill(os.getpid(), signal.SIGINT)
        while not noticed.wait(0.5):  # Python misses a signal that comes just before a thread begins to wait
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, handle)
    yield press
    signal.signal(signal.SIGINT, before)


@contextmanager
def pressing(press: Press, *moments: threading.Event | MainThreadWaits) -> Generator[None]:
    """Press Ctrl-C at each of these moments."""

    def watch() -> None:
        for moment in moments:
            if moment.wait(LIMIT):
                press()

    thread = threading.Thread(target=watch, name="finger")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def holdfast_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("holdfast")}


class MainThreadWaits:
    """The moment in which the main thread waits for a call, though nothing of that has begun."""

    def wait(self, limit: float) -> bool:
        end, main = time.monotonic() + limit, threading.main_thread().ident
        while time.monotonic() < end:
            frame = sys._current_frames().get(main or 0)  # pyright: ignore[reportPrivateUsage]
            if frame is not None and frame.f_code is CallingThread.serve.__code__:
                return True
            time.sleep(0.001)
        return False


class Stubborn:
    """Work that, once cancelled, takes its time to end."""

    def __init__(self) -> None:
        self.began, self.was_cancelled, self.may_end = threading.Event(), threading.Event(), threading.Event()
        self.ended = threading.Event()

    async def work(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled.set()
            await asyncio.to_thread(self.may_end.wait, LIMIT)
            self.ended.set()


def test_a_drain_ends_with_all_it_was_running_and_gives_the_jobs_back(
    app: App, interrupt: type[BaseException], press: Press
):
    before = holdfast_threads()
    began, ended = threading.Event(), threading.Event()
    ran: list[int] = []

    @app.task(queue="slow")
    async def stay(n: int) -> None:
        ran.append(n)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    jobs = stay.sync.enqueue_many([{"n": 1}, {"n": 2}])
    with pytest.raises(interrupt), pressing(press, began):
        app.sync.drain("slow", batch=1)

    assert ended.is_set()
    assert [job.sync.state() for job in jobs] == [JobState.READY] * 2
    assert ran == [1]
    assert app.sync.leases() == []
    app.sync.close()
    assert holdfast_threads() <= before


def test_the_end_of_what_was_broken_off_is_waited_for(app: App, interrupt: type[BaseException], press: Press):
    stubborn = Stubborn()

    def let_end() -> None:
        assert stubborn.was_cancelled.wait(LIMIT)
        stubborn.may_end.set()

    thread = threading.Thread(target=let_end)
    thread.start()
    with pytest.raises(interrupt), pressing(press, stubborn.began):
        app.portal.call(stubborn.work())

    assert stubborn.ended.is_set()
    thread.join()


def test_a_second_interrupt_ends_the_wait_and_close_takes_it_up(app: App, interrupt: type[BaseException], press: Press):
    before = holdfast_threads()
    stubborn = Stubborn()
    with pytest.raises(interrupt), pressing(press, stubborn.began, stubborn.was_cancelled):
        app.portal.call(stubborn.work())
    assert not stubborn.ended.is_set()
    assert not app.portal.is_idle

    closing = threading.Thread(target=app.sync.close)
    closing.start()
    stubborn.may_end.set()
    closing.join(LIMIT)

    assert stubborn.ended.is_set()
    assert holdfast_threads() <= before


def test_close_says_what_does_not_end_and_that_nothing_is_closed(interrupt: type[BaseException], press: Press):
    portal, stubborn = Portal(close_timeout=0.05), Stubborn()
    with pytest.raises(interrupt), pressing(press, stubborn.began, stubborn.was_cancelled):
        portal.call(stubborn.work())

    refusal = (
        r"closed nothing: Stubborn\.work, called in thread MainThread, was interrupted and has not ended within 0\.05 s"
    )
    with pytest.raises(ConfigError, match=refusal):
        portal.settle()
    assert portal.call(asyncio.sleep(0, "as before")) == "as before"

    stubborn.may_end.set()
    while not portal.is_idle:
        portal.call(asyncio.sleep(0))
    portal.settle()
    portal.close()


def test_what_has_not_begun_when_it_is_interrupted_never_begins(interrupt: type[BaseException], press: Press):
    portal = Portal()
    busy, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    async def keeps_the_loop_busy() -> None:
        busy.set()
        go_on.wait(LIMIT)

    async def never() -> None:
        ran.append("it did")

    hog = threading.Thread(target=lambda: portal.call(keeps_the_loop_busy()))
    hog.start()
    assert busy.wait(LIMIT)
    with pytest.raises(interrupt), pressing(press, MainThreadWaits()):
        portal.call(never())
    go_on.set()
    hog.join()
    portal.call(asyncio.sleep(0))

    assert ran == []
    assert portal.is_idle
    portal.close()


def test_calls_after_an_interrupt_work_as_before(app: App, interrupt: type[BaseException], press: Press):
    began = threading.Event()

    async def stay() -> None:
        began.set()
        await asyncio.Event().wait()

    with pytest.raises(interrupt), pressing(press, began):
        app.portal.call(stay())

    @app.task
    async def add(a: int) -> int:
        return a + 1

    job = add.sync.enqueue(1)
    app.sync.drain("default")
    assert job.sync.result() == 2


def test_close_refuses_while_another_thread_is_in_a_call_and_leaves_it_alone(app: App):
    @app.task
    async def add(a: int) -> int:
        return a + 1

    job = add.sync.enqueue(a=1)
    began, go_on = threading.Event(), threading.Event()
    found: list[JobState] = []

    async def patient() -> JobState:
        began.set()
        await asyncio.to_thread(go_on.wait, LIMIT)
        return await job.state()

    other = threading.Thread(target=lambda: found.append(app.portal.call(patient())), name="request 7")
    other.start()
    assert began.wait(LIMIT)
    with pytest.raises(ConfigError, match=r"closed nothing, since calls are in flight: .*patient in thread request 7"):
        app.sync.close()
    assert app.is_open

    go_on.set()
    other.join()
    assert found == [JobState.READY]
    app.sync.close()
    assert not app.is_open
