"""What type checkers know of `.sync` is what it does: `assert_type` is checked with the types of the tests."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, assert_type

import pytest

from holdfast import App, Batch, ClaimedJob, EventPage, JobHandle, JobState, TaskHandle
from holdfast.app.admin import Jobs, Queues
from holdfast.app.consumers import ConsumerDesk
from holdfast.app.sync_types import SyncApp, SyncConsumers, SyncHeldJob, SyncJob, SyncJobs, SyncQueues, SyncTask
from holdfast.store.values import JobPage, LeaseView

TWINS: list[tuple[type, type]] = [
    (App, SyncApp),
    (TaskHandle, SyncTask),
    (JobHandle, SyncJob),
    (ClaimedJob, SyncHeldJob),
    (Jobs, SyncJobs),
    (Queues, SyncQueues),
    (ConsumerDesk, SyncConsumers),
]
OWN = {"enqueue_new"}  # of the app's own parts alone


def methods(cls: type) -> dict[str, Any]:
    return {name: found for name, found in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(("original", "face"), TWINS)
def test_every_async_method_has_a_blocking_twin_of_the_same_signature(original, face):
    asked = {
        name: inspect.signature(method)
        for name, method in methods(original).items()
        if inspect.iscoroutinefunction(method) and name not in OWN
    }

    assert {name: inspect.signature(method) for name, method in methods(face).items() if name in asked} == asked


@pytest.mark.parametrize(("original", "face"), TWINS)
def test_every_other_method_takes_what_its_original_takes(original, face):
    for name, method in methods(face).items():
        assert inspect.signature(method).parameters == inspect.signature(methods(original)[name]).parameters, name


@pytest.fixture
def app(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.sync.close()


def test_what_is_declared_is_there(app: App):
    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    with assert_type(app.sync, SyncApp) as blocking:
        assert_type(blocking, SyncApp)
        job = add.sync.enqueue(1)
        assert_type(add.sync, SyncTask)
        assert_type(add.sync.options(delay=1), SyncTask)
        assert_type(add.sync.enqueue_many([]), Sequence[JobHandle])
        assert_type(job, JobHandle)
        assert_type(job.sync, SyncJob)
        assert_type(blocking.job(job.id), SyncJob)
        assert_type(blocking.job(job.id).state(), JobState)
        assert_type(blocking.jobs, SyncJobs)
        assert_type(app.jobs.sync, SyncJobs)
        assert_type(app.queues.sync, SyncQueues)
        assert_type(app.consumers.sync, SyncConsumers)
        assert_type(blocking.jobs.list("ready"), JobPage)
        assert_type(blocking.leases(), list[LeaseView])
        assert_type(blocking.read(log=True), EventPage)
        (held,) = assert_type(blocking.claim("default"), list[ClaimedJob])
        assert_type(held.sync, SyncHeldJob)
        with assert_type(blocking.batch([held]), AbstractContextManager[Batch]) as batch:
            batch.complete(held)


def test_a_wrong_call_is_seen_by_type_checkers(app: App):
    def wrong() -> None:
        app.sync.leases("many")  # type: ignore[arg-type]
        app.sync.no_such_call()  # type: ignore[attr-defined]
        app.sync.drain("default", lease="long")  # type: ignore[arg-type]
        app.job("x").sync.wait("long")  # type: ignore[arg-type]
        app.worker(concurency=3)  # type: ignore[call-arg]
        app.run_worker(processes=2, lease="long")  # type: ignore[arg-type]
        app.consumer("x", categories="y")  # type: ignore[arg-type]
        app.consumer("x", capacity="y")  # type: ignore[arg-type]

    assert callable(wrong)  # what counts is that each of its lines is an error without its comment
