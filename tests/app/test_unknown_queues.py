"""Queues whose names are probably misspelt are warned of, with the closest match."""

from __future__ import annotations

import logging

import pytest
from tests.app.work import run_all

from holdfast import App

UNKNOWN = "no job was ever enqueued to mials, and no task of the app uses this queue; did you mean mails?"


@pytest.fixture
def send(app: App):
    @app.task(queue="mails")
    async def send() -> None: ...

    return send


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_worker_warns_of_a_queue_that_neither_its_tasks_nor_the_store_know(app: App, send, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        await run_all(app, queues=["mials", "mails"])
    assert warnings(caplog) == [UNKNOWN]


async def test_a_worker_does_not_warn_of_a_queue_that_had_a_job(app: App, send, caplog):
    await send.options(queue="mials").enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        await run_all(app, queues=["mials"])
        await run_all(app, queues=["mials"])  # it is known although it is empty now
    assert warnings(caplog) == []


async def test_a_queue_without_a_similar_name_is_warned_of_without_a_guess(app: App, send, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        await run_all(app, queues=["xyz"])
    assert warnings(caplog) == ["no job was ever enqueued to xyz, and no task of the app uses this queue"]


async def test_pausing_a_task_that_is_unknown_is_done_with_a_warning(app: App, send, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert await app.tasks.pause("unborn")
        assert await app.tasks.pause(send.name)
    assert [line.partition(" was")[0] for line in warnings(caplog)] == ["paused, but no job of the task unborn"]
    assert {record.name for record in caplog.records} == {"holdfast.jobs"}  # as for queues
    assert {view.name for view in await app.tasks.list() if view.paused} == {"unborn", send.name}


async def test_pausing_a_queue_that_is_unknown_is_done_with_a_warning(app: App, send, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert await app.queues.pause("mials")
        assert await app.queues.pause("mails")
    assert warnings(caplog) == [f"paused, but {UNKNOWN}"]
    assert {record.name for record in caplog.records} == {"holdfast.jobs"}
    assert {view.name for view in await app.queues.list() if view.paused} == {"mials", "mails"}
