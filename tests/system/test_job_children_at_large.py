"""Job children and what is around them: imports, transactions, whole programs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.system import job_children
from tests.system.apps import children_app as app
from tests.system.job_children import SOON, begun, job_for, wait_for
from tests.system.supervised_program import wait_until_gone

from holdfast.model.ids import new_id
from holdfast.model.job import JobState, LeasedJob, NewJob
from holdfast.model.outcome import Completed, Retried, Snoozed
from holdfast.store.values import ClaimRequest, Finish, Verdict
from holdfast.testing.stores import open_store
from holdfast.worker.decision import Why
from holdfast.worker.job_child import pool as child_pool
from holdfast.worker.job_child.pool import ChildPool

pytestmark = pytest.mark.slow
pool, url = job_children.pool, job_children.url  # fixtures


# --- handlers that cannot be found -----------------------------------------------------------------------------------


async def refused(pool: ChildPool, task) -> str:
    job = msgspec.structs.replace(job_for(app.whoami), task=task.name)
    outcome = await pool.run(task, job, timeout=SOON)
    assert isinstance(outcome, Retried), outcome
    assert outcome.failure.error_class == "holdfast.errors.ConfigError"
    return outcome.failure.message


async def test_a_name_that_is_no_task_is_refused_with_a_remedy(pool):
    message = await refused(pool, app.Handle(app.unwrapped).task)
    assert "'unwrapped' in module 'tests.system.apps.children_app' is a function, not a task" in message
    assert "Keep the result of @app.task" in message


async def test_a_name_that_is_another_task_is_refused(pool):
    message = await refused(pool, app.first_of_two.task)
    assert "'first_of_two'" in message
    assert "is the task 'second_of_two'" in message


async def test_a_module_that_cannot_be_imported_is_not_the_jobs_doing(pool, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def handler() -> None:
        pass

    for module, body, said in (
        ("missing_module", None, "No module named 'missing_module'"),
        ("exiting_module", "raise SystemExit(5)", "SystemExit: 5"),
    ):
        if body is not None:
            (tmp_path / f"{module}.py").write_text(body)
        handler.__module__, handler.__qualname__ = module, "handler"
        message = await refused(pool, app.Handle(handler).task)
        assert said in message


def no_memory(*_: object, **__: object) -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def no_thread(*_: object) -> None:
    message = "can't start new thread"
    raise RuntimeError(message)


@pytest.mark.parametrize(
    ("where", "name", "refuse", "said"),
    [
        (subprocess, "Popen", no_memory, "Cannot allocate memory"),
        (socket, "socketpair", no_memory, "Cannot allocate memory"),
        (threading.Thread, "start", no_thread, "can't start new thread"),
    ],
    ids=["process", "socket", "thread"],
)
async def test_a_system_that_refuses_a_child_costs_no_attempt_however_often(
    pool, monkeypatch, caplog, where, name, refuse, said
):
    job = msgspec.structs.replace(job_for(app.add, 1, 2), max_attempts=1, attempt=101, excused=100)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, refuse)
        outcome = await pool.run(app.add.task, job, timeout=SOON)
    assert outcome == Snoozed(timedelta(seconds=60))
    assert said in caplog.text
    assert job_children.children() == []
    assert await pool.run(app.add.task, job, timeout=SOON) == Completed("3")


@pytest.fixture
def dying(tmp_path, monkeypatch):
    """Make a task whose module takes the child down when it is imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "dying_module.py").write_text("import os; os._exit(9)")

    def handler() -> None:
        pass

    handler.__module__, handler.__qualname__ = "dying_module", "handler"
    return app.Handle(handler)


async def test_a_child_that_is_gone_before_it_began_costs_no_attempt(pool, dying, caplog):
    job = msgspec.structs.replace(job_for(dying), max_attempts=1)
    assert await pool.run(dying.task, job, timeout=SOON) == Snoozed(timedelta(seconds=5))
    assert "ended by itself with exit code 9 before it had imported" in caplog.text


async def test_a_module_that_takes_its_child_down_every_time_costs_attempts_in_the_end(pool, dying):
    job = msgspec.structs.replace(job_for(dying), attempt=11, excused=10)
    outcome = await pool.run(dying.task, job, timeout=SOON)
    assert isinstance(outcome, Retried)
    assert "ended by itself with exit code 9 before it had imported" in outcome.failure.message


async def test_an_import_past_the_limit_costs_no_attempt_and_its_child_is_gone(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(child_pool, "_START_LIMIT", 1.0)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_module.py").write_text("import time; time.sleep(60)")

    def handler() -> None:
        pass

    handler.__module__, handler.__qualname__ = "slow_module", "handler"
    slow = app.Handle(handler)
    job = msgspec.structs.replace(job_for(slow), max_attempts=1)
    assert await pool.run(slow.task, job, timeout=SOON) == Snoozed(timedelta(seconds=5))
    assert job_children.children() == []


async def test_a_handler_inside_a_function_is_refused(pool):
    def inner() -> None:
        pass

    task = msgspec.structs.replace(app.whoami.task, handler=inner, name="inner")
    assert "move it to the top of a module" in await refused(pool, task)


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def store(url, tmp_path):
    async with open_store(url) as backend:
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
            connection.execute("create table effect (text text not null)")
            connection.commit()
        yield backend


async def claimed(store, handle, *args) -> LeasedJob:
    payload = handle.task.signature.encode(args, {})
    await store.jobs.enqueue([NewJob(id=new_id(), queue="default", task=handle.task.name, payload=payload)])
    claim = await store.jobs.claim(
        ClaimRequest(worker_id="w1", tasks=(handle.task.name,), limit=1, lease=app.LEASE, queues=None)
    )
    job: LeasedJob = claim.jobs[0]
    return job


def effects(tmp_path) -> list[str]:
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        return [text for (text,) in connection.execute("select text from effect")]


class Keeper:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def settling(self, seq: int) -> None:
        self.heard.append("settling")

    def settled(self, seq: int) -> None:
        self.heard.append("settled")

    def unsettled(self, seq: int) -> None:
        self.heard.append("unsettled")


@pytest.mark.parametrize("handle", [app.effect, app.effect_blocking], ids=["async", "blocking"])
async def test_a_transaction_in_a_child_commits_effect_and_completion_together(pool, store, tmp_path, handle):
    job = await claimed(store, handle, "paid")
    keeper = Keeper()
    assert await pool.run(handle.task, job, timeout=SOON, keeper=keeper) is None
    assert keeper.heard == ["settling", "settled"]
    assert effects(tmp_path) == ["paid"]
    details = await store.insight.job(job.id)
    assert details.job.state is JobState.COMPLETED
    assert details.result == ('"wrote paid"' if handle is app.effect else None)


async def test_a_transaction_that_raises_in_a_child_leaves_neither_effect_nor_completion(pool, store, tmp_path):
    job = await claimed(store, app.effect_undone, "paid")
    outcome = await pool.run(app.effect_undone.task, job, timeout=SOON)
    assert isinstance(outcome, Retried)
    assert effects(tmp_path) == []
    assert await store.jobs.finish([Finish(job.lease, outcome)]) == [Verdict.DONE]


async def test_a_child_that_dies_after_its_transaction_has_committed_has_completed_the_job(pool, store, tmp_path):
    job = await claimed(store, app.effect_and_death, "paid")
    assert await pool.run(app.effect_and_death.task, job, timeout=SOON) is None
    assert effects(tmp_path) == ["paid"]
    assert (await store.insight.job(job.id)).job.state is JobState.COMPLETED


async def test_a_lease_that_vanished_by_completion_does_not_cost_the_handler_its_end(pool, store, tmp_path):
    mark = tmp_path / "mark"
    job = await claimed(store, app.effect_and_more, str(mark))
    running = asyncio.create_task(pool.run(app.effect_and_more.task, job, timeout=SOON))
    await begun(mark)
    pool.abort(job, Why.LEASE_LOST)
    assert await running is None
    assert mark.read_text() == "finished"


async def test_a_context_in_a_child_writes_under_the_lease(pool, store):
    job = await claimed(store, app.report_progress)
    assert await pool.run(app.report_progress.task, job, timeout=SOON) == Completed(str(job.fence))
    lost = msgspec.structs.replace(job, fence=job.fence - 1)
    outcome = await pool.run(app.report_progress.task, lost, timeout=SOON)
    assert isinstance(outcome, Retried)  # which the store answers with LOST
    assert outcome.failure.error_class == "holdfast.errors.LeaseLost"


# --- whole programs --------------------------------------------------------------------------------------------------

PROGRAM = """
from __future__ import annotations
import asyncio, os, sys, time
from tests.system.apps.children_app import App, Handle, LEASE, sleep
from tests.system.job_children import job_for
from holdfast.worker.job_child.pool import ChildPool

app = App()

@Handle
def here() -> list:
    return [__name__, os.getpid()]

async def main(handle, *args):
    pool = ChildPool(lease=LEASE, limit=1)
    print(await pool.run(handle.task, job_for(handle, *args), timeout=None), flush=True)
    await pool.close()

"""


@contextlib.contextmanager
def program(tmp_path, body, *command):
    script = tmp_path / "program"  # without .py: a console script has none
    script.write_text(PROGRAM + textwrap.dedent(body))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(tmp_path)])}
    process = subprocess.Popen(
        [sys.executable, *(command or (str(script),))], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize(
    "handle", [app.sleep, app.sleep_async, app.hold_the_interpreter], ids=lambda handle: handle.task.name
)
def test_a_child_dies_with_a_killed_worker(tmp_path, handle):
    if handle is app.hold_the_interpreter and sys.platform != "linux":
        pytest.skip("the kernel cannot do this here")
    args = (60,) if handle is app.hold_the_interpreter else (str(tmp_path / "pid"), 60)
    body = f"""
    from tests.system.apps import children_app
    asyncio.run(main(children_app.{handle.task.name}, *{args!r}))
    """
    with program(tmp_path, body) as process:
        worker = psutil.Process(process.pid)
        deadline = time.monotonic() + SOON
        while not (below := worker.children()) and time.monotonic() < deadline:
            time.sleep(0.01)
        if handle is not app.hold_the_interpreter:
            wait_for(tmp_path / "pid")
        else:
            time.sleep(1)  # nothing can be said while the lock is held
        assert below
        worker.kill()
        wait_until_gone(below, within=2.0)


def test_a_task_of_the_main_file_is_found_though_the_file_has_no_suffix(tmp_path):
    body = """
    if __name__ == "__main__":
        asyncio.run(main(here))
    """
    with program(tmp_path, body) as process:
        said = process.communicate(timeout=SOON)[0]
    assert 'Completed(result=\'["__holdfast_main__",' in said


def test_a_task_of_a_main_module_of_a_package_is_found_with_its_relative_imports(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "neighbour.py").write_text("NAME = 'next door'\n")
    (package / "__main__.py").write_text(
        PROGRAM
        + textwrap.dedent("""
            from .neighbour import NAME
            if __name__ == "__main__":
                asyncio.run(main(here))
        """)
    )
    with program(tmp_path, "", "-m", "shop") as process:
        said = process.communicate(timeout=SOON)[0]
    assert "shop.__holdfast_main__" in said


def test_a_main_file_that_starts_its_worker_unguarded_is_told_so(tmp_path):
    with program(tmp_path, "asyncio.run(main(here))") as process:
        said = process.communicate(timeout=SOON)[0]
    assert "ConfigError" in said
    assert 'under `if __name__ == "__main__":`' in said


def test_a_main_without_a_file_is_refused_with_a_remedy(tmp_path):
    with program(tmp_path, "", "-c", PROGRAM + "asyncio.run(main(here))") as process:
        said = process.communicate(timeout=SOON)[0]
    assert "__main__ that has no file" in said
    assert "move it to a module" in said
