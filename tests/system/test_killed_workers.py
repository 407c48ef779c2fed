"""Workers killed at each point of a job's way; another one finishes the job, which takes effect once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.system.harness import BUSY, all_gone

from holdfast.runtime.failpoint import NAMES

IN_A_TRANSACTION = ("after_claim", "before_effect", "after_effect", "before_commit", "after_commit")
IN_THE_BUFFER = ("after_claim", "before_flush", "after_flush")


def test_the_points_of_these_tests_are_all_there_are():
    assert set(IN_A_TRANSACTION + IN_THE_BUFFER) == set(NAMES)


@pytest.mark.parametrize("task", ["pay", pytest.param("pay_in_thread", marks=pytest.mark.slow)])
def test_a_worker_killed_at_any_point_loses_no_job_and_doubles_no_effect(ledger, workers, task):
    jobs = {point: ledger.enqueue(task, {"queue": point}) for point in IN_A_TRANSACTION}
    killed = {point: workers.start(queues=[point], failpoints=f"{point}=kill") for point in jobs}
    for worker in killed.values():
        assert worker.end() == -signal.SIGKILL, worker.text
    past = {"after_commit"}
    if task == "pay" and ledger.store.sends_commit_with_completion:
        past.add("before_commit")
    assert {effect.job_id for effect in ledger.store.effects()} == {jobs[point] for point in past}
    workers.run_until_empty()
    ledger.assert_once(list(jobs.values()))
    for point, job in jobs.items():
        attempts = ledger.show(job).attempts
        assert [attempt.outcome for attempt in attempts] == ([] if point in past else ["rescued"]), point
        assert ledger.used_attempts(job) == 1, point  # to be lost without blame costs no attempt


def test_a_worker_killed_at_any_point_loses_no_outside_effect(ledger, workers, tmp_path: Path):
    def notes(point: str) -> list[str]:
        path = tmp_path / point
        return path.read_text().splitlines() if path.exists() else []

    jobs = {
        point: ledger.enqueue("pay_outside", {"queue": point}, path=str(tmp_path / point)) for point in IN_THE_BUFFER
    }
    killed = {point: workers.start(queues=[point], failpoints=f"{point}=kill") for point in jobs}
    for worker in killed.values():
        assert worker.end() == -signal.SIGKILL, worker.text
    workers.run_until_empty()
    ledger.completed(*jobs.values())
    # At least once: what was done before the finish was written is done again, under a larger fence.
    assert {point: len(notes(point)) for point in jobs} == {"after_claim": 1, "before_flush": 2, "after_flush": 1}
    first, second = (int(line.split()[2]) for line in notes("before_flush"))
    assert first < second


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=() if point == "before_commit" else pytest.mark.slow) for point in IN_A_TRANSACTION[1:]],
)
def test_a_job_child_dies_with_its_killed_worker_and_the_job_takes_effect_once(ledger, workers, gate, point):
    barrier = gate("point")
    job = ledger.enqueue("pay_in_child")
    worker = workers.start(failpoints=f"{point}=pause:{barrier.path}")
    barrier.reached()
    children = worker.below()
    worker.kill()
    all_gone(children, within=2.0)
    barrier.close()
    workers.run_until_empty()
    ledger.assert_once([job])


def test_a_killed_job_child_is_followed_by_another_without_its_worker_noticing_more(ledger, workers, gate):
    barrier = gate("point")
    job = ledger.enqueue("pay_in_child")
    worker = workers.start(failpoints=f"after_effect=pause:{barrier.path}")
    barrier.reached()
    (child,) = worker.below()
    child.suspend()  # so that it cannot go on when the gate is left
    barrier.close()
    child.kill()
    all_gone([child], within=2.0)
    barrier.open()
    ledger.completed(job)
    ledger.assert_once([job])
    assert [attempt.outcome for attempt in ledger.show(job).attempts] == ["rescued"]
    assert ledger.used_attempts(job) == 2  # it ran alone, so that its end was its own doing
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


def test_a_killed_workers_jobs_run_again_within_a_second_where_a_supervisor_lives(ledger, workers, gate):
    barrier = gate("late")
    job = ledger.enqueue("pay_late", gate=barrier.path)
    supervisor = workers.start(processes=2, lease=30.0)
    pid = int(supervisor.line(rf"began {job} (\d+)")[1])
    began = time.monotonic()
    next(process for process in supervisor.below() if process.pid == pid).kill()
    supervisor.line(rf"began {job} (\d+)", within=5.0)
    assert time.monotonic() - began < 1.0 + BUSY
    barrier.open()
    ledger.completed(job)
    ledger.assert_once([job])
    supervisor.signal(signal.SIGTERM)
    assert supervisor.end() == 0, supervisor.text
