"""Job children: handlers that run alone, in real processes that are really killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.system.apps import children_app as app
from tests.system.supervised_program import wait_until_gone

from holdfast.model.ids import new_id
from holdfast.model.job import JobState, LeasedJob, NewJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Lost, Retried, Snoozed
from holdfast.store.values import ClaimRequest, Finish, Verdict
from holdfast.testing.stores import open_store
from holdfast.worker import child_pool
from holdfast.worker.child_pool import ChildPool
from holdfast.worker.child_protocol import Ended, Frames, Hello, Notice, Run, encode, from_child
from holdfast.worker.decision import Why

pytestmark = pytest.mark.slow
SOON = 10.0
_seqs = itertools.count(1)


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv(app.URL, url)
    return url


@pytest.fixture
async def pool():
    pool = ChildPool(lease=app.LEASE, limit=2)
    yield pool
    await pool.close()
    assert children() == [], "a child or a zombie was left behind"


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def job_for(handle, *args, lost: int = 0, attempt: int = 1, **kwargs) -> LeasedJob:
    return LeasedJob(
        id=new_id(),
        seq=next(_seqs),
        queue="default",
        task=handle.task.name,
        payload=handle.task.signature.encode(args, kwargs),
        headers=None,
        priority=0,
        max_attempts=5,
        timeout=None,
        enqueued_us=0,
        turn_us=0,
        attempt=attempt,
        excused=0,
        interrupted=0,
        lost=lost,
        fence=1,
    )


async def run(pool: ChildPool, handle, *args, timeout: float | None = SOON, **kwargs):
    return await pool.run(handle.task, job_for(handle, *args, **kwargs), timeout=timeout)


def wait_for(mark: Path) -> str:
    deadline = time.monotonic() + SOON
    while not mark.exists():
        assert time.monotonic() < deadline, "the handler did not begin"
        time.sleep(0.01)  # another process writes it: there is no event here to await
    return mark.read_text()


async def begun(mark: Path) -> str:
    return await asyncio.to_thread(wait_for, mark)


# --- how handlers end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", [app.add, app.add_async], ids=["plain", "async"])
async def test_the_result_of_a_handler_comes_back(pool, handle):
    assert await run(pool, handle, 2, b=3) == Completed("5")


async def test_an_error_comes_back_as_text_and_is_retried_by_policy(pool):
    outcome = await run(pool, app.raise_error, "no such order")
    assert isinstance(outcome, Retried)
    assert (outcome.failure.error_class, outcome.failure.message) == ("ValueError", "no such order")
    assert "raise ValueError(text)" in outcome.failure.traceback
    assert "holdfast/worker/child.py" not in outcome.failure.traceback


async def test_an_error_on_the_last_attempt_fails_the_job(pool):
    assert isinstance(await run(pool, app.raise_error, "no", attempt=5), Failed)


async def test_endings_on_purpose_come_back_as_such(pool):
    retried = await run(pool, app.ask_for_retry, 90)
    assert isinstance(retried, Retried)
    assert (retried.delay.total_seconds(), retried.failure.message) == (90, "not yet")
    snoozed = await run(pool, app.ask_for_snooze, 2.5)
    assert isinstance(snoozed, Snoozed)
    assert snoozed.delay.total_seconds() == 2.5
    assert await run(pool, app.give_up, "wrong address") == Cancelled("wrong address")


async def test_arguments_that_do_not_fit_are_an_error_of_the_job_not_of_the_child(pool):
    job = msgspec.structs.replace(job_for(app.add, 1, 2), payload='[[],{"a":"x"}]')
    outcome = await pool.run(app.add.task, job, timeout=SOON)
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "holdfast.errors.PayloadError"


async def test_sys_exit_is_an_error_like_others_and_does_not_end_the_child(pool):
    before = await run(pool, app.whoami)
    outcome = await run(pool, app.exit_politely, 3)
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "SystemExit"
    assert await run(pool, app.whoami) == before


async def test_a_plain_function_without_a_context_runs_in_the_main_thread(pool):
    assert await run(pool, app.is_main_thread) == Completed("true")


# --- how children die ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handle", "args", "said"),
    [
        (app.exit_at_once, (3,), "ended by itself with exit code 3"),
        (app.exit_at_once, (0,), "ended by itself with exit code 0"),
        (app.kill_oneself, (11,), "was killed by signal 11 (SIGSEGV)"),
        (app.kill_oneself, (9,), "was killed by signal 9 (SIGKILL), as the system does when memory runs out,"),
        (app.read_nothing, (), "was killed by signal 11 (SIGSEGV)"),
    ],
    ids=["exit 3", "exit 0", "SIGSEGV", "SIGKILL", "null pointer"],
)
async def test_a_child_that_dies_under_its_job_loses_it_by_the_jobs_own_doing(pool, handle, args, said):
    outcome = await run(pool, handle, *args)
    assert isinstance(outcome, Lost)
    assert outcome.failure.error_class == "WorkerLost"
    assert outcome.failure.message == f"the child process {said} while it ran this job"
    assert await run(pool, app.add, 1, 1) == Completed("2"), "the pool goes on"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit does not hold everywhere")
async def test_a_handler_that_runs_out_of_memory_fails_and_its_child_is_not_used_again(pool):
    before = await run(pool, app.whoami)
    outcome = await run(pool, app.use_all_memory)
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "MemoryError"
    assert await run(pool, app.whoami) != before


@pytest.mark.parametrize("handle", [app.leave_a_process_behind, app.leave_a_fork_behind], ids=["process", "fork"])
async def test_a_death_is_noticed_though_a_process_below_lives_on(pool, tmp_path, handle):
    mark = tmp_path / "pid"
    started = time.monotonic()
    outcome = await run(pool, handle, str(mark))
    below = psutil.Process(int(mark.read_text()))
    assert below.is_running()
    below.kill()
    wait_until_gone([below], SOON)
    assert isinstance(outcome, Lost)
    assert "exit code 7" in outcome.failure.message
    assert time.monotonic() - started < SOON


async def test_a_child_whose_handler_closed_its_connection_is_lost(pool):
    assert isinstance(await run(pool, app.close_every_descriptor), Lost)


@pytest.mark.parametrize("handle", [app.sleep, app.sleep_async], ids=["plain", "async"])
async def test_a_child_is_killed_at_the_time_limit(pool, tmp_path, handle):
    mark = tmp_path / "pid"
    await run(pool, app.add, 1, 1)  # a limit counts from the beginning of the attempt, not of the process
    started = time.monotonic()
    outcome = await run(pool, handle, str(mark), 60, timeout=0.3)
    assert 0.25 < time.monotonic() - started < 3
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "TimeLimit"
    assert not psutil.pid_exists(int(mark.read_text()))


async def test_a_child_that_holds_the_interpreter_lock_is_killed_at_the_time_limit(pool):
    outcome = await run(pool, app.hold_the_interpreter, 60, timeout=0.3)
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "TimeLimit"


# --- aborts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", [Why.LEASE_LOST, Why.SHUTDOWN])
async def test_a_lost_lease_and_a_shutdown_kill_the_child_at_once_and_there_is_nothing_to_write(pool, tmp_path, why):
    mark = tmp_path / "pid"
    job = job_for(app.sleep, str(mark), 60)
    running = asyncio.create_task(pool.run(app.sleep.task, job, timeout=None))
    pid = int(await begun(mark))
    started = time.monotonic()
    pool.abort(job, why)
    assert await running is None
    assert time.monotonic() - started < 2
    assert not psutil.pid_exists(pid)


async def test_a_cancel_is_told_to_a_plain_handler_and_its_own_word_counts(pool, tmp_path, url):
    async with open_store(url):
        mark = tmp_path / "pid"
        job = job_for(app.wait_for_cancel, str(mark))
        running = asyncio.create_task(pool.run(app.wait_for_cancel.task, job, timeout=None))
        await begun(mark)
        pool.abort(job, Why.CANCEL_ASKED)
        assert await running == Cancelled("I was asked to")


async def test_a_cancel_cancels_an_async_handler_and_leaves_its_child_in_use(pool, tmp_path):
    mark = tmp_path / "pid"
    job = job_for(app.sleep_async, str(mark), 60)
    running = asyncio.create_task(pool.run(app.sleep_async.task, job, timeout=None))
    pid = int(await begun(mark))
    pool.abort(job, Why.CANCEL_ASKED)
    assert await running == Cancelled("cancelled while it ran, as was asked")
    assert (await run(pool, app.whoami)).result.startswith(f"[{pid},")


async def test_a_handler_that_is_deaf_to_a_cancel_is_killed_after_a_grace(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(child_pool, "_GRACE", 0.3)
    mark = tmp_path / "pid"
    job = job_for(app.sleep, str(mark), 60)
    running = asyncio.create_task(pool.run(app.sleep.task, job, timeout=None))
    pid = int(await begun(mark))
    pool.abort(job, Why.CANCEL_ASKED)
    pool.abort(job, Why.CANCEL_ASKED)
    outcome = await running
    assert isinstance(outcome, Cancelled)
    assert "killed" in outcome.reason
    assert not psutil.pid_exists(pid)


async def test_a_job_that_waits_for_a_place_can_be_aborted(tmp_path):
    pool = ChildPool(lease=app.LEASE, limit=1)
    mark = tmp_path / "pid"
    busy, first, second = job_for(app.sleep, str(mark), 60), job_for(app.add, 1, 2), job_for(app.add, 1, 2)
    running = [
        asyncio.create_task(pool.run(handle.task, job, timeout=None))
        for handle, job in ((app.sleep, busy), (app.add, first), (app.add, second))
    ]
    await begun(mark)
    pool.abort(first, Why.CANCEL_ASKED)
    pool.abort(second, Why.SHUTDOWN)
    assert await running[1] == Cancelled("asked to cancel before its handler began")
    assert await running[2] is None
    await pool.close()
    assert await running[0] is None
    assert children() == []


async def test_to_cancel_the_coroutine_kills_the_child(pool, tmp_path):
    mark = tmp_path / "pid"
    running = asyncio.create_task(run(pool, app.sleep, str(mark), 60, timeout=None))
    pid = int(await begun(mark))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not psutil.pid_exists(pid)


async def test_a_lost_lease_is_told_to_a_child_that_is_asked_to_tell(tmp_path):
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "holdfast.worker.child", str(theirs.fileno())]
    mark = tmp_path / "mark"
    environment = {**os.environ, app.URL: f"sqlite:///{tmp_path}/jobs.db"}
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment) as child:  # noqa: ASYNC220
        theirs.close()
        handle = app.wait_for_loss
        job = job_for(handle, str(mark))
        ours.sendall(encode(Hello(os.getpid(), [os.fsencode(place) for place in sys.path], None)))
        ours.sendall(encode(Run(app.__name__, "wait_for_loss", handle.task.name, job, app.LEASE)))
        await begun(mark)
        ours.sendall(encode(Notice(Why.LEASE_LOST)))
        frames = Frames(from_child)
        words = [word for _ in range(2) for word in frames.feed(ours.recv(1000))]
        assert words[-1] == Ended(None, clean=True)
        assert mark.read_text() == "lost"
        ours.shutdown(socket.SHUT_RDWR)
        assert child.wait(SOON) != 0


# --- reuse, limits, leaks --------------------------------------------------------------------------------------------


async def test_a_child_stays_in_the_workers_group_and_runs_the_next_job(pool):
    first = await run(pool, app.whoami)
    second = await run(pool, app.whoami)
    assert first == second
    pid, group, parent = msgspec.json.decode(first.result)
    assert pid != os.getpid()
    assert (group, parent) == (os.getpgid(0), os.getpid())


async def test_a_hundred_small_jobs_run_in_no_more_children_than_allowed(pool):
    outcomes = await asyncio.gather(*(run(pool, app.add, number, 1) for number in range(100)))
    assert outcomes == [Completed(str(number + 1)) for number in range(100)]
    assert 1 <= len(children()) <= 2


async def test_a_child_ends_after_its_share_of_jobs(pool, monkeypatch):
    monkeypatch.setattr(child_pool, "_MAX_JOBS", 2)
    pids = [(await run(pool, app.whoami)).result for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_an_idle_child_ends_after_a_while(pool, monkeypatch):
    monkeypatch.setattr(child_pool, "_IDLE", 0.1)
    await run(pool, app.add, 1, 1)
    await asyncio.to_thread(wait_until_gone, children(), SOON)


async def test_a_child_with_a_task_left_behind_is_not_used_again(pool):
    first = await run(pool, app.leave_a_task_behind)
    assert not (await run(pool, app.whoami)).result.startswith(f"[{first.result},")


async def test_a_child_that_died_while_it_was_idle_costs_nobody_anything(pool):
    await run(pool, app.add, 1, 1)
    (child,) = children()
    child.kill()
    assert await run(pool, app.add, 1, 2) == Completed("3")


async def test_a_terminals_signals_to_the_group_are_not_for_the_child(pool, tmp_path):
    mark = tmp_path / "pid"
    running = asyncio.create_task(run(pool, app.sleep, str(mark), 0.5, timeout=None))
    pid = int(await begun(mark))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert await running == Completed()


async def test_no_descriptor_and_no_process_is_left_whatever_happened(tmp_path):
    await asyncio.to_thread(int)  # whatever the loop opens once is open now
    me = psutil.Process()
    before = me.num_fds()
    pool = ChildPool(lease=app.LEASE, limit=3)
    mark = tmp_path / "pid"
    broken_off = asyncio.create_task(run(pool, app.sleep, str(mark), 60, timeout=None))
    await begun(mark)
    for _ in range(3):
        await run(pool, app.add, 1, 1)
        await run(pool, app.exit_at_once, 1)
        await run(pool, app.sleep, str(tmp_path / "other"), 60, timeout=0.05)
    await pool.close()
    assert await broken_off is None
    assert children() == []
    assert me.num_fds() == before


async def test_a_closed_pool_takes_no_more_jobs(pool):
    await pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        await run(pool, app.add, 1, 1)


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
    assert "keep what @app.task returns" in message


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
        ("dying_module", "import os; os._exit(9)", "ended by itself with exit code 9 before it had imported"),
    ):
        if body is not None:
            (tmp_path / f"{module}.py").write_text(body)
        handler.__module__, handler.__qualname__ = module, "handler"
        message = await refused(pool, app.Handle(handler).task)
        assert said in message


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
from tests.system.test_job_children import job_for
from holdfast.worker.child_pool import ChildPool

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
