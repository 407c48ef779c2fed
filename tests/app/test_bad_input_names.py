"""Settings whose names are misspelt, and decorators without their parentheses."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.app.stream_work import QUICK, drained, eventually, running

from holdfast import App, ConfigError, JobNotFound, JobState


async def noop() -> None: ...


async def handle(event: Any) -> None: ...


def test_a_consumer_without_a_name_is_refused_at_once(app: App):
    remedy = re.escape('@app.consumer("handle", category=…)')

    with pytest.raises(ConfigError, match=f"pass a name and what it reads, as in {remedy}"):
        app.consumer(handle)  # type: ignore[arg-type]

    assert len(app.subscribed) == 0


def test_a_class_without_a_name_is_refused_at_once(app: App):
    class Handler:
        async def handle(self, event: Any) -> None: ...

    with pytest.raises(ConfigError, match=r'@app.consumer\("Handler", category=…\)'):
        app.consumer(Handler)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "meant"), [("categories", "category"), ("onerror", "on_error"), ("Start", "start")])
def test_a_setting_that_no_consumer_has_is_refused_with_what_may_be_meant(app: App, given, meant):
    wrong: dict[str, Any] = {given: "y"}

    with pytest.raises(ConfigError) as refused:
        app.consumer("x", **wrong)

    assert f"there is no setting {given}: did you mean {meant}? There are category, stream, log," in str(refused.value)


def test_a_setting_that_resembles_none_is_refused_with_all_there_are(app: App):
    wrong: dict[str, Any] = {"zzz": 1}

    with pytest.raises(ConfigError, match=r"^consumer 'x': there is no setting zzz: there are category, .*executor$"):
        app.consumer("x", **wrong)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("concurency", "concurrency"), ("queue", "queues"), ("workerid", "worker_id"), ("stuckgrace", "stuck_grace")],
)
def test_a_setting_that_no_worker_has_is_refused_with_what_may_be_meant(app: App, given, meant):
    app.task(noop)
    wrong: dict[str, Any] = {given: 3}

    for call in (app.worker, app.run_worker):
        with pytest.raises(ConfigError, match=f"there is no setting {given}: did you mean {meant}"):
            call(**wrong)


def test_a_renamed_setting_of_a_worker_is_refused_with_its_new_name(app: App):
    app.task(noop)
    old: dict[str, Any] = {"patience": 3}

    for call in (app.worker, app.run_worker):
        with pytest.raises(ConfigError, match=r"the setting patience is called release_timeout now"):
            call(**old)


@pytest.mark.parametrize("name", ["worker_id", "queues", "stuck_grace", "worker_class", "lease", "prune_limit"])
def test_all_settings_of_a_worker_are_listed(app: App, name):
    app.task(noop)
    wrong: dict[str, Any] = {"zzz": 3}

    with pytest.raises(ConfigError, match=rf"app.worker: there is no setting zzz: there are .*\b{name}\b"):
        app.worker(**wrong)


@pytest.mark.parametrize("given", ["proceses", "nodeid", "timings"])
def test_what_a_program_of_workers_takes_beside_is_listed_too(app: App, given):
    app.task(noop)
    wrong: dict[str, Any] = {given: 3}

    with pytest.raises(ConfigError, match=r"app.run_worker: .*did you mean .*processes, node_id, timing"):
        app.run_worker(**wrong)


async def test_what_a_drain_decides_by_itself_cannot_be_given(app: App):
    app.task(noop)
    wrong: dict[str, Any] = {"queues": ["a"]}

    with pytest.raises(ConfigError, match=r"app.drain: there is no setting queues: there are"):
        await app.drain("default", **wrong)


async def test_a_job_is_found_by_a_uuid_as_by_its_text(app: App):
    task = app.task(noop)
    given = uuid4()
    job = await task.options(job_id=given).enqueue()

    assert job.id == str(given)
    assert await app.job(given).state() is JobState.READY
    assert (await app.jobs.show(given)).job.id == job.id
    assert not await app.jobs.retry(given)
    assert not await app.jobs.reset(given)
    assert await app.jobs.copy(given) != job.id
    assert (await app.jobs.cancel(given)).value == "cancelled"
    with pytest.raises(JobNotFound):
        await app.job(UUID(int=0)).state()


async def test_an_event_is_appended_and_dropped_by_a_uuid_as_by_its_text(app: App):
    @app.consumer("billing", category="orders", max_attempts=1, on_error="park")
    async def bill(event: Any) -> None:
        raise ValueError("no")

    given = uuid4()

    await app.append("orders", stream="order-1", name="placed", event_id=given)
    await app.append("orders", stream="order-1", name="placed", event_id=str(given).upper())

    (event,) = await app.read("orders")
    assert event.id == str(given)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    with pytest.raises(ConfigError, match="is neither a str nor a UUID"):
        await app.consumers.drop_parked("billing", event_id=7)  # type: ignore[arg-type]
    for nobodys in (uuid4(), "nobody", "\ud800"):
        assert await app.consumers.drop_parked("billing", event_id=nobodys) == 0
    assert await app.consumers.drop_parked("billing", event_id=given) == 1


@pytest.mark.parametrize("given", [7, None, b"x"])
async def test_what_is_no_id_is_refused_in_words(app: App, given: Any):
    with pytest.raises(ConfigError, match="is neither a str nor a UUID"):
        app.job(given)
    with pytest.raises(ConfigError, match="is neither a str nor a UUID"):
        await app.jobs.show(given)
