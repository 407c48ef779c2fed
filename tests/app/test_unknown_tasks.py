"""A worker warns once of ready jobs in its queues whose task no live worker knows."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from tests.app.work import LIMIT, working

from holdfast import App
from holdfast.model.ids import new_id
from holdfast.model.job import NewJob
from holdfast.store.values import ClaimRequest, WorkerHeartbeat
from holdfast.worker.unknown_tasks import UnknownTasks


async def put(app: App, task: str, queue: str = "default") -> None:
    await (await app.opened()).jobs.enqueue([NewJob(new_id(), queue, task, "[[],{}]")])


def request(*, queues: tuple[str, ...] | None = None) -> ClaimRequest:
    return ClaimRequest("w1", ("greet",), 1, timedelta(seconds=30), queues)


async def looked(app: App, unknown: UnknownTasks, caplog: pytest.LogCaptureFixture, **options) -> list[str]:
    caplog.clear()
    await unknown.look(request(**options))
    return [record.getMessage() for record in caplog.records]


@pytest.fixture
def unknown(file_app: App) -> UnknownTasks:
    return UnknownTasks(lambda: file_app.backend.insight)


async def test_each_task_is_named_once_with_the_remedy(file_app: App, unknown: UnknownTasks, caplog):
    await put(file_app, "charge")
    await put(file_app, "greet")
    (line,) = await looked(file_app, unknown, caplog)
    assert line == (
        "jobs of task charge are ready in queue default, but no live worker knows this task: start a worker whose app "
        "defines it, or cancel them with `holdfast job cancel --queue default --task charge`"
    )
    await put(file_app, "charge")
    assert await looked(file_app, unknown, caplog) == []
    await put(file_app, "charge", "mails")
    assert len(await looked(file_app, unknown, caplog)) == 1


async def test_other_queues_and_paused_ones_are_not_spoken_of(file_app: App, unknown: UnknownTasks, caplog):
    await put(file_app, "charge", "mails")
    assert await looked(file_app, unknown, caplog, queues=("default",)) == []
    await file_app.queues.pause("mails")
    assert await looked(file_app, unknown, caplog) == []


async def test_a_task_that_another_live_worker_knows_is_not_spoken_of(file_app: App, unknown: UnknownTasks, caplog):
    await put(file_app, "charge")
    extender = file_app.backend.extender()
    other = WorkerHeartbeat("w2", "here", 1, None, 1, timedelta(seconds=30), 0, tasks=("charge",))
    extender.heartbeat(other)
    extender.close()
    assert await looked(file_app, unknown, caplog) == []


def test_a_worker_looks_soon_then_now_and_then_and_less_often_while_it_is_busy():
    unknown = UnknownTasks(lambda: pytest.fail("not asked"))
    assert [unknown.is_look_due(now, 0) for now in (0.0, 0.9, 1.0, 10.9, 11.0)] == [False, False, True, False, True]
    assert [unknown.is_look_due(now, 5) for now in (21.5, 70.9, 71.0)] == [False, False, True]


async def test_a_worker_reports_the_tasks_it_knows_and_warns_of_others(file_app: App, caplog, monkeypatch):
    has_looked = asyncio.Event()
    look = UnknownTasks.look

    async def observed(self: UnknownTasks, request: ClaimRequest) -> None:
        await look(self, request)
        has_looked.set()

    monkeypatch.setattr(UnknownTasks, "look", observed)

    @file_app.task
    def greet() -> None: ...

    await put(file_app, "charge")
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        async with working(file_app):
            await asyncio.wait_for(has_looked.wait(), LIMIT)
            (worker,) = await file_app.workers()
            assert worker.heartbeat.tasks == ("greet",)
    assert caplog.text.count("jobs of task charge are ready") == 1
