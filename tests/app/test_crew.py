"""A worker and a node in one process: asked to end once, asked twice, and one of them unable to begin."""

from __future__ import annotations

import asyncio
import contextlib

from tests.app.stream_work import QUICK as TIMING
from tests.app.stream_work import append, eventually
from tests.app.work import LIMIT, QUICK

from holdfast import App, Event, JobState
from holdfast.app import run_worker as run_worker_module
from holdfast.app.run_worker import WorkerProcess
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.stream_values import StartAt, Subscription
from holdfast.streams.node import Node


class Late:
    """A task that goes on until it is let go, and a consumer beside it that has nothing to do."""

    def __init__(self, app: App) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.was_broken_off = False

        @app.task
        async def late() -> None:
            self.began.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.was_broken_off = True
                raise

        @app.consumer("billing", category="orders", poll_interval=0.05)
        async def billing(event: Event) -> None: ...

        self.task = late


class Idle(Node):
    """A node that has nothing to end: it is over as soon as it is asked."""

    has_ended = False

    async def run(self) -> None:
        await self._stop.wait()
        self.has_ended = True


def idle_node(app: App) -> Idle:
    return Idle(app.backend, list(app.subscribed), timing=TIMING)


async def test_a_handler_has_its_time_to_drain_though_the_node_beside_it_ends_at_once(file_app: App):
    late = Late(file_app)
    job = await late.task.enqueue()
    worker, node = file_app.worker(**QUICK), idle_node(file_app)
    crew = WorkerProcess(worker, node)
    running = asyncio.create_task(crew.run())
    await asyncio.wait_for(late.began.wait(), LIMIT)
    crew.stop()
    await asyncio.sleep(0.2)

    assert (node.has_ended, worker.status().phase, late.was_broken_off) == (True, "draining", False)
    late.go_on.set()
    assert await asyncio.wait_for(running, LIMIT) == 0
    assert await job.state() is JobState.COMPLETED


async def test_a_worker_beside_a_node_that_ends_by_itself_is_asked_to_drain(file_app: App):
    late = Late(file_app)
    job = await late.task.enqueue()
    worker, node = file_app.worker(**QUICK), idle_node(file_app)
    running = asyncio.create_task(WorkerProcess(worker, node).run())
    await asyncio.wait_for(late.began.wait(), LIMIT)
    node.stop()
    await asyncio.sleep(0.2)

    assert (worker.status().phase, late.was_broken_off) == ("draining", False)
    late.go_on.set()
    assert await asyncio.wait_for(running, LIMIT) == 0
    assert await job.state() is JobState.COMPLETED


async def test_a_crew_asked_twice_gives_back_what_runs(file_app: App):
    late = Late(file_app)
    job = await late.task.enqueue()
    crew = WorkerProcess(file_app.worker(**QUICK), idle_node(file_app))
    running = asyncio.create_task(crew.run())
    await asyncio.wait_for(late.began.wait(), LIMIT)
    crew.stop()
    crew.stop()

    assert await asyncio.wait_for(running, LIMIT) == 3
    assert (await job.state(), late.was_broken_off) == (JobState.READY, True)


def test_a_supervisor_waits_for_all_that_a_worker_may_take_to_end(tmp_path, monkeypatch):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task
    async def quick() -> None: ...

    waits: list[float] = []
    monkeypatch.setattr(run_worker_module, "_run_many", lambda *args, kill_after, **named: waits.append(kill_after))
    app.run_worker(processes=2, drain_timeout=5.0, abort_grace=20.0)
    app.run_worker(processes=2)

    handlers_may_take = [5.0 + 2 * 20.0, 30.0 + 2 * 2.0]
    assert all(waited > longest for waited, longest in zip(waits, handlers_may_take, strict=True))


async def test_a_consumer_that_cannot_subscribe_ends_the_crew_as_a_wrong_configuration(file_app: App, caplog):
    backend = await file_app.opened()
    await backend.streams.consumers.subscribe("billing", Subscription("payments", None), StartAt.BEGINNING)
    Late(file_app)
    crew = WorkerProcess(file_app.worker(**QUICK), file_app.node(timing=TIMING))
    assert await asyncio.wait_for(crew.run(), LIMIT) == ExitCode.CONFIGURATION
    assert "give the new one another name" in caplog.text


async def test_a_node_whose_name_is_taken_ends_the_crew_as_a_wrong_configuration_in_words_alone(file_app: App, caplog):
    Late(file_app)
    first = WorkerProcess(None, file_app.node(node_id="box-1", timing=TIMING))
    second = file_app.node(node_id="box-1", timing=TIMING)
    running = asyncio.create_task(first.run())
    await eventually(file_app.nodes)
    taking = asyncio.create_task(second.run())
    assert await asyncio.wait_for(running, LIMIT) == ExitCode.CONFIGURATION
    second.stop()
    await taking
    (record,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "has joined as node box-1: give each process a separate node id" in record.getMessage()
    assert record.exc_info is None


async def test_a_process_does_not_wait_for_handlers_that_a_node_without_a_name_has_left_behind(file_app: App):
    began, go_on = asyncio.Event(), asyncio.Event()

    @file_app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        while not go_on.is_set():
            began.set()
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    await append(file_app, "a", 1)
    crew = WorkerProcess(None, file_app.node(node_id="box-1", timing=TIMING, stuck_grace=0.1))
    second = file_app.node(node_id="box-1", timing=TIMING, stuck_grace=0.1)
    running = asyncio.create_task(crew.run())
    await began.wait()
    taking = asyncio.create_task(second.run())
    assert await asyncio.wait_for(running, LIMIT) == ExitCode.CONFIGURATION
    assert crew.may_leave_handlers
    go_on.set()
    second.stop()
    await taking
