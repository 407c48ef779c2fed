"""What type checkers know of `.sync` is what it does: `assert_type` is checked with the types of the tests."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import assert_type

import pytest

from holdfast import App, Batch, ClaimedJob, EventPage, JobHandle, JobState, TaskHandle
from holdfast.app.admin import Jobs, Queues, SyncJobs, SyncQueues
from holdfast.app.app import SyncApp
from holdfast.app.claimed_job import SyncClaimedJob
from holdfast.app.consumers import ConsumerDesk, SyncConsumers
from holdfast.app.job_handle import SyncJob
from holdfast.app.sync import Blocking
from holdfast.app.task_admin import SyncTasks, TasksOfApp
from holdfast.app.tasks import SyncTask
from holdfast.store.stream_values import CategoryView
from holdfast.store.values import JobPage, LeaseView

TWINS: list[tuple[type, type]] = [
    (App, SyncApp),
    (TaskHandle, SyncTask),
    (JobHandle, SyncJob),
    (ClaimedJob, SyncClaimedJob),
    (Jobs, SyncJobs),
    (Queues, SyncQueues),
    (TasksOfApp, SyncTasks),
    (ConsumerDesk, SyncConsumers),
]
OURS = {"enqueue_new", "close"}  # for other modules only; and `close`, which ends the thread of the blocking calls too


@pytest.mark.parametrize(("original", "blocking"), TWINS)
def test_every_async_method_has_a_blocking_counterpart_made_from_it(original, blocking):
    asked = {
        name: method
        for name, method in inspect.getmembers(original, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in OURS
    }
    made = {name: found.method for name, found in vars(blocking).items() if isinstance(found, Blocking)}

    assert made == asked


@pytest.mark.parametrize(("original", "blocking"), TWINS)
def test_every_other_method_takes_what_its_original_takes(original, blocking):
    for name, method in vars(blocking).items():
        if inspect.isfunction(method) and not name.startswith("_") and method.__annotations__["return"] != "NoReturn":
            assert inspect.signature(method).parameters == inspect.signature(getattr(original, name)).parameters, name


def overloads(cls: type) -> list[tuple[str, str, str]]:
    """Return the name, the parameters and the result of each overload in the text of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return [
        (node.name, ast.unparse(node.args), "" if node.returns is None else ast.unparse(node.returns))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
    ]


@pytest.mark.parametrize(("original", "blocking"), TWINS)
def test_the_overloads_of_the_blocking_methods_are_those_of_the_originals(original: type, blocking: type):
    repeated = {name for name, _, _ in overloads(blocking)}

    assert overloads(blocking) == [each for each in overloads(original) if each[0] in repeated]


def test_the_overloads_of_a_task_are_seen():
    assert {name for name, _, _ in overloads(SyncTask)} == {"call", "enqueue", "enqueue_many"}


def test_a_subclass_that_overrides_an_async_method_overrides_the_blocking_one_too(tmp_path: Path):
    class Silent(App):
        async def leases(self, limit: int = 100, *, expired_only: bool = False) -> list[LeaseView]:
            return []

        async def categories(self) -> Sequence[CategoryView]:
            return [CategoryView("overridden", 1)]

    app = Silent(f"sqlite:///{tmp_path}/never-opened.db")

    assert app.sync.leases() == []
    assert app.sync.categories() == [CategoryView("overridden", 1)]
    app.portal.close()


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
        assert_type(add.sync.enqueue(1), JobHandle[int])
        assert_type(add.sync.options(delay=1).enqueue(1), JobHandle[int])
        assert_type(add.sync.enqueue_many([]), Sequence[JobHandle[int]])
        assert_type(job, JobHandle[int])
        assert_type(job.sync, SyncJob[int])
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
        assert_type(held.sync, SyncClaimedJob)
        with assert_type(blocking.batch([held]), AbstractContextManager[Batch]) as batch:
            batch.complete(held)


def test_a_wrong_call_is_seen_by_type_checkers(app: App):
    @app.task
    async def add(a: int) -> None: ...

    def wrong() -> None:
        app.sync.leases("many")  # type: ignore[arg-type]
        app.sync.no_such_call()  # type: ignore[attr-defined]
        app.sync.drain("default", lease="long")  # type: ignore[arg-type]
        app.job("x").sync.wait("long")  # type: ignore[arg-type]
        app.worker(concurency=3)  # type: ignore[call-arg]
        app.run_worker(processes=2, lease="long")  # type: ignore[arg-type]
        app.consumer("x", categories="y")  # type: ignore[call-arg]
        app.consumer("x", capacity="y")  # type: ignore[arg-type]
        app.task(queu="y")  # type: ignore[call-overload]
        add.options(delay="y")  # type: ignore[arg-type]
        add.options(prioriti=1)  # type: ignore[call-arg]
        add.sync.options(prioriti=1)  # type: ignore[call-arg]
        add.sync.enqueue_many(7)  # type: ignore[call-overload]

    assert callable(wrong)  # what counts is that each of its lines is an error without its comment
