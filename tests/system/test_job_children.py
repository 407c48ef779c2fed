"""Job children: handlers that run alone, in real processes that are really killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta

import msgspec
import psutil
import pytest
from tests.system import job_children
from tests.system.apps import children_app as app
from tests.system.job_children import SOON, begun, children, job_for, run
from tests.system.supervised_program import wait_until_gone

from holdfast.model.outcome import Cancelled, Completed, Failed, Lost, Retried, Snoozed
from holdfast.testing.stores import open_store
from holdfast.worker.decision import Why
from holdfast.worker.job_child import pool as child_pool
from holdfast.worker.job_child.pool import ChildPool
from holdfast.worker.job_child.process import ChildProcess
from holdfast.worker.job_child.protocol import Frames, Hello, JobEnded, Notice, RunJob, encode, from_child

pytestmark = pytest.mark.slow
pool, url = job_children.pool, job_children.url  # fixtures


# --- how children begin ----------------------------------------------------------------------------------------------


async def test_no_more_children_are_started_at_once_than_there_are_processors(monkeypatch):
    starting = [0]
    begin = child_pool._begin

    async def counted(child: ChildProcess) -> None:
        is_new = child.jobs == 1
        starting.append(starting[-1] + is_new)
        await begin(child)
        starting.append(starting[-1] - is_new)

    monkeypatch.setattr(child_pool, "_begin", counted)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    pool = ChildPool(lease=timedelta(seconds=30), limit=6)
    try:
        outcomes = await asyncio.gather(*(run(pool, app.add, number, b=1) for number in range(6)))
    finally:
        await pool.close()
    assert outcomes == [Completed(str(number + 1)) for number in range(6)]
    assert (max(starting), starting[-1]) == (2, 0)


# --- how handlers end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", [app.add, app.add_async], ids=["plain", "async"])
async def test_the_result_of_a_handler_comes_back(pool, handle):
    assert await run(pool, handle, 2, b=3) == Completed("5")


async def test_an_error_comes_back_as_text_and_is_retried_by_policy(pool):
    outcome = await run(pool, app.raise_error, "no such order")
    assert isinstance(outcome, Retried)
    assert (outcome.failure.error_class, outcome.failure.message) == ("ValueError", "no such order")
    assert "raise ValueError(text)" in outcome.failure.traceback
    assert "holdfast/worker/job_child/program.py" not in outcome.failure.traceback


async def test_a_handler_that_returns_a_coroutine_has_not_done_its_work(pool):
    outcome = await run(pool, app.add_without_await, 2, b=3)
    assert isinstance(outcome, Retried)
    assert "returned a coroutine that was never awaited" in outcome.failure.message


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
    assert await running == Cancelled("cancelled while it ran, as requested")
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
    assert await running[1] == Cancelled("cancelled before its handler began, as requested")
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


@contextlib.contextmanager
def ended_child(command: list[str], **options):
    """RunJob a child that does not outlive the block, however that ends."""
    with subprocess.Popen(command, **options) as child:
        try:
            yield child
        finally:
            child.kill()


def said_until_ended(ours: socket.socket) -> list[object]:
    """Return the words of a child up to the end of its job; how many come at once is chance."""
    frames = Frames(from_child)
    words: list[object] = []
    while not any(isinstance(word, JobEnded) for word in words):
        words += frames.feed(ours.recv(1000))
    return words


async def test_a_lost_lease_is_told_to_a_child_that_is_asked_to_tell(tmp_path):
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON)
    command = [sys.executable, "-P", "-m", "holdfast.worker.job_child.program", str(theirs.fileno())]
    mark = tmp_path / "mark"
    environment = {**os.environ, app.URL: f"sqlite:///{tmp_path}/jobs.db"}
    with ours, ended_child(command, pass_fds=(theirs.fileno(),), env=environment) as child:
        theirs.close()
        handle = app.wait_for_loss
        job = job_for(handle, str(mark))
        ours.sendall(encode(Hello(os.getpid(), [os.fsencode(place) for place in sys.path], None)))
        ours.sendall(encode(RunJob(app.__name__, "wait_for_loss", handle.task.name, job, app.LEASE)))
        await begun(mark)
        ours.sendall(encode(Notice(Why.LEASE_LOST)))
        assert said_until_ended(ours)[-1] == JobEnded(None, clean=True)
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


async def test_a_child_with_a_task_left_behind_is_not_used_again_though_its_handler_raised(pool):
    outcome = await run(pool, app.leave_a_task_behind_and_raise)
    assert isinstance(outcome, Retried)
    assert not (await run(pool, app.whoami)).result.startswith(f"[{outcome.failure.message},")


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
