"""SIGTERM: once, twice, and against a handler that does not listen."""

from __future__ import annotations

import signal
import time

import pytest
from tests.system.harness import all_gone, eventually

from holdfast.model.job import JobState


def test_sigterm_lets_the_running_job_finish_and_gives_the_others_back(ledger, workers, gate):
    barrier = gate("late")
    quick = ledger.enqueue_many("do_nothing", [{}] * 300)
    running = ledger.enqueue("pay_late_in_thread", gate=barrier.path)
    quick += ledger.enqueue_many("do_nothing", [{}] * 300)
    worker = workers.start(concurrency=1, release_timeout=60.0)
    barrier.reached()
    eventually(lambda: len(ledger.leases()) > 1, "some were claimed ahead, behind the one that runs")
    worker.signal(signal.SIGTERM)
    eventually(lambda: len(ledger.leases()) == 1, "what had not begun was given back")
    assert ledger.state(running) == JobState.RUNNING
    barrier.open()
    assert worker.end() == 0, worker.text
    assert ledger.state(running) == JobState.COMPLETED
    assert ledger.leases() == []
    given_back = [job for job in quick if ledger.state(job) == JobState.READY]
    assert given_back
    workers.run_until_empty()
    ledger.assert_once([running])
    ledger.completed(*quick)
    outcomes = [[attempt.outcome for attempt in ledger.show(job).attempts] for job in given_back]
    assert all(outcome in ([], ["released"]) for outcome in outcomes)
    assert ["released"] in outcomes


@pytest.mark.parametrize("task", ["pay_late", pytest.param("pay_late_in_child", marks=pytest.mark.slow)])
def test_a_second_sigterm_gives_the_running_job_back_at_once_without_costing_an_attempt(ledger, workers, gate, task):
    barrier = gate("late")
    job = ledger.enqueue(task, gate=barrier.path)
    worker = workers.start(lease=30.0)
    worker.line(rf"began {job}")
    children = worker.below()
    worker.signal(signal.SIGTERM)
    worker.line("draining; signal again")
    assert ledger.state(job) == JobState.RUNNING  # it waits for the handler
    asked = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.end() == 3, worker.text
    assert time.monotonic() - asked < 5.0
    all_gone(children, within=2.0)
    assert ledger.state(job) == JobState.READY
    assert ledger.effects_of(job) == []
    assert [attempt.outcome for attempt in ledger.show(job).attempts] == ["released"]
    other = workers.start(until_empty=True)
    other.line(rf"began {job}")
    barrier.open()
    assert other.end() == 0, other.text
    ledger.assert_once([job])
    assert ledger.used_attempts(job) == 1


def test_a_thread_that_ignores_the_end_is_left_behind_and_its_job_given_back(ledger, workers, gate):
    barrier = gate("late")
    job = ledger.enqueue("pay_late_in_thread", gate=barrier.path)
    worker = workers.start(lease=30.0, drain_timeout=0.2, abort_grace=0.2)
    worker.line(rf"began {job}")
    worker.signal(signal.SIGTERM)
    assert worker.end(within=10.0) == 3, worker.text
    assert ledger.state(job) == JobState.READY
    other = workers.start(until_empty=True)
    other.line(rf"began {job}")
    barrier.open()
    assert other.end() == 0, other.text
    ledger.assert_once([job])
    assert ledger.used_attempts(job) == 1


def test_a_supervisor_asked_twice_gives_back_what_all_its_workers_run(ledger, workers, gate):
    barrier = gate("late")
    jobs = ledger.enqueue_many("pay_late", [{"gate": barrier.path}] * 4)
    supervisor = workers.start(processes=2, concurrency=2, prefetch_max=0, lease=30.0)
    for _ in jobs:
        supervisor.line("began ")
    supervisor.signal(signal.SIGTERM)
    for _ in range(2):
        supervisor.line("draining; signal again")  # two signals in one instant would be one
    supervisor.signal(signal.SIGTERM)
    assert supervisor.end(within=10.0) == 3, supervisor.text
    assert {ledger.state(job) for job in jobs} == {JobState.READY}
    assert ledger.store.effects() == []
