"""A worker and a node in one process: asked to end once, asked twice, and one of them unable to begin."""

from __future__ import annotations

import asyncio

from tests.app.stream_work import QUICK as TIMING
from tests.app.work import LIMIT, QUICK

from holdfast import App, Event, JobState
from holdfast.app import app as app_module
from holdfast.app.serve import Crew
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
    crew = Crew(worker, node)
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
    running = asyncio.create_task(Crew(worker, node).run())
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
    crew = Crew(file_app.worker(**QUICK), idle_node(file_app))
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
    monkeypatch.setattr(app_module, "run_many", lambda *args, kill_after, **named: waits.append(kill_after))
    app.run_worker(processes=2, drain_timeout=5.0, abort_grace=20.0)
    app.run_worker(processes=2)

    handlers_may_take = [5.0 + 2 * 20.0, 30.0 + 2 * 2.0]
    assert all(waited > longest for waited, longest in zip(waits, handlers_may_take, strict=True))


async def test_a_consumer_that_cannot_subscribe_ends_the_crew_as_a_wrong_configuration(file_app: App, caplog):
    backend = await file_app.opened()
    await backend.streams.consumers.subscribe("billing", Subscription("payments", None), StartAt.BEGINNING)
    Late(file_app)
    crew = Crew(file_app.worker(**QUICK), file_app.node(timing=TIMING))
    assert await asyncio.wait_for(crew.run(), LIMIT) == ExitCode.CONFIGURATION
    assert "give the new one another name" in caplog.text
