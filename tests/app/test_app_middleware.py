"""Middleware around handlers of tasks and consumers: in the event loop, in threads and in child processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
from tests.app.capability import needs
from tests.app.stream_work import QUICK as TIMING
from tests.app.stream_work import append, drained, eventually, running
from tests.app.work import QUICK, run_all

from holdfast import App, Cancel, Context, Event, LeasedJob, Worker
from holdfast.hooks import HandlerCall

SOON = 30.0
tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")
in_child = App("sqlite:///never-opened.db")  # at the top of a module, so that a child finds its tasks


@in_child.middleware
def of_tenant(call: HandlerCall) -> Iterator[None]:
    token = tenant.set(f"{call.jobs[0].headers}" if call.jobs else call.events[0].stream)
    try:
        yield
    finally:
        tenant.reset(token)


@in_child.task(executor="process")
def plain() -> list[int | str]:
    return [os.getpid(), tenant.get()]


@in_child.task(executor="process")
async def with_context(ctx: Context) -> list[int | str]:
    return [os.getpid(), tenant.get()]


@in_child.task(executor="process", max_attempts=1)
def refused() -> None: ...


@in_child.middleware
def refusing(call: HandlerCall) -> Iterator[None]:
    if call.name == "refused":
        raise PermissionError("not today")
    yield


@in_child.consumer("billing", category="orders", poll_interval=0.05, executor="process")
def billing(event: Event) -> None:
    Path(event.payload["path"]).write_text(f"{os.getpid()} {tenant.get()}", encoding="utf-8")


async def test_middleware_runs_in_the_child_where_the_handler_of_a_consumer_runs(tmp_path: Path):
    in_child.use(f"sqlite:///{tmp_path}/jobs.db")
    seen = tmp_path / "seen"
    async with in_child:
        await in_child.append("orders", stream="order-7", name="placed", payload={"path": str(seen)})
        async with running(in_child.node(timing=TIMING)):
            await eventually(drained(in_child), within=SOON)
    in_child.portal.close()

    pid, _, stream = seen.read_text(encoding="utf-8").partition(" ")
    assert int(pid) != os.getpid()
    assert stream == "order-7"


async def test_middleware_runs_in_the_child_where_the_handler_runs(tmp_path: Path):
    in_child.use(f"sqlite:///{tmp_path}/jobs.db")
    errors: list[tuple[str, object]] = []

    def note(end):
        errors.append((end.failure.error_class, end.error))

    in_child.on("job.fail", note)
    async with in_child:
        jobs = [await task.options(headers={"t": "a"}).enqueue() for task in (plain, with_context)]
        wrong = await refused.enqueue()
        await asyncio.wait_for(in_child.worker(**QUICK, until_empty=True).run(), SOON)
        for job in jobs:
            pid, seen = await job.result(timeout=0)
            assert pid != os.getpid()
            assert seen == "{'t': 'a'}"
        assert await wrong.state() == "failed"
    in_child.off("job.fail", note)
    in_child.portal.close()

    assert errors == [("PermissionError", None)], "observers run in the worker, and have no exception of a child"


async def test_an_async_handler_runs_inside_all_middleware(on_each_store: App):
    app = on_each_store
    steps: list[str] = []

    @app.middleware
    async def outer(call: HandlerCall) -> AsyncIterator[None]:
        steps.append(f"outer before {call.kind} {call.name} {call.args} {call.kwargs}")
        await asyncio.sleep(0)
        yield
        steps.append("outer after")

    @app.middleware
    def inner(call: HandlerCall) -> Iterator[None]:
        steps.append(f"inner before attempt {call.jobs[0].attempt}")
        yield
        steps.append("inner after")

    @app.task
    async def charge(order_id: int, note: str = "") -> int:
        steps.append("handler")
        return order_id

    job = await charge.enqueue(7, note="x")
    await run_all(app)

    assert await job.result(timeout=0) == 7
    assert steps == [
        "outer before task charge [] {'order_id': 7, 'note': 'x'}",
        "inner before attempt 1",
        "handler",
        "inner after",
        "outer after",
    ]


async def test_a_plain_handler_has_the_plain_middleware_in_its_thread(app: App):
    threads: dict[str, str] = {}

    @app.middleware
    def inside(call: HandlerCall) -> Iterator[None]:
        threads["middleware"] = threading.current_thread().name
        token = tenant.set("acme")
        yield
        tenant.reset(token)

    @app.middleware
    async def in_loop(call: HandlerCall) -> AsyncIterator[None]:
        threads["async middleware"] = threading.current_thread().name
        yield

    @app.task
    def charge() -> str:
        threads["handler"] = threading.current_thread().name
        return tenant.get()

    job = await charge.enqueue()
    await run_all(app)

    assert await job.result(timeout=0) == "acme"
    assert threads["middleware"] == threads["handler"] != threads["async middleware"]
    assert threads["async middleware"] == threading.current_thread().name


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_middleware_raises_ends_the_attempt(app: App, is_async):
    @app.middleware
    def closed(call: HandlerCall) -> Iterator[None]:
        if call.name == "charge":
            raise Cancel("the shop is closed")
        yield

    async def charge_async() -> None:
        raise AssertionError("it must not run")

    def charge() -> None:
        raise AssertionError("it must not run")

    job = await app.task(name="charge")(charge_async if is_async else charge).enqueue()
    await run_all(app)

    assert await job.state() == "cancelled"
    assert (await job.details()).job.reason == "the shop is closed"


async def test_middleware_sees_the_error_and_may_turn_it_into_another(app: App):
    seen: list[BaseException] = []

    @app.middleware
    def translate(call: HandlerCall) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            seen.append(error)
            raise Cancel("gone") from error

    @app.task
    async def charge() -> None:
        raise LookupError("there is no order 7")

    job = await charge.enqueue()
    await run_all(app)

    assert await job.state() == "cancelled"
    assert [str(error) for error in seen] == ["there is no order 7"]


async def test_the_time_limit_holds_for_middleware_too(app: App):
    @app.middleware
    async def slow(call: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(SOON)
        yield

    @app.task(timeout=0.05, max_attempts=1)
    async def charge() -> None: ...

    job = await charge.enqueue()
    await run_all(app)

    assert await job.state() == "failed"


async def test_a_worker_of_a_subclass_has_middleware_around_its_process(app: App):
    seen: list[HandlerCall] = []

    class Own(Worker):
        async def process(self, job: LeasedJob, ctx: Context) -> str:
            return "own"

    @app.middleware
    def note(call: HandlerCall) -> Iterator[None]:
        seen.append(call)
        yield

    @app.task
    async def charge() -> None: ...

    job = await charge.enqueue()
    await run_all(app, worker_class=Own)

    assert await job.result(timeout=0, type=str) == "own"
    assert [call.name for call in seen] == ["charge"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_runs_around_the_handlers_of_consumers(on_each_store: App, is_async):
    needs(on_each_store, "keep streams")
    app = on_each_store
    steps: list[str] = []

    @app.middleware
    def around(call: HandlerCall) -> Iterator[None]:
        steps.append(f"before {call.kind} {call.name} attempt {call.attempt}: {call.events[0].stream}")
        yield
        steps.append("after")

    @app.middleware
    async def around_too(call: HandlerCall) -> AsyncIterator[None]:
        yield

    async def handle_async(event: Event) -> None:
        steps.append("handler")

    def handle(event: Event) -> None:
        steps.append("handler")

    app.consumer("billing", category="orders", poll_interval=0.05)(handle_async if is_async else handle)
    await append(app, "a", 1)
    async with running(app.node(timing=TIMING)):
        await eventually(drained(app))

    assert steps == ["before consumer billing attempt 1: a", "handler", "after"]
