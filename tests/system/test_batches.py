"""Batches in processes that are killed and frozen in the middle: each job of theirs takes effect once."""

from __future__ import annotations

import signal

import pytest

from holdfast.model.job import JobState

SIZE = 4


def enqueue(ledger) -> list[str]:
    return [ledger.enqueue("pay_in_batches", argument=number) for number in range(SIZE)]


@pytest.mark.parametrize(
    "point",
    [pytest.param("before_effect", marks=pytest.mark.slow), "after_effect"],
)
def test_a_worker_killed_in_the_middle_of_a_batch_loses_no_job_and_doubles_no_effect(ledger, workers, point):
    jobs = enqueue(ledger)
    worker = workers.start(failpoints=f"{point}=kill")
    worker.line(rf"batch of {SIZE} ")
    assert worker.end() == -signal.SIGKILL, worker.text
    assert ledger.store.effects() == []
    workers.run_until_empty(lease=6.0)  # a transaction may take a third of it, also on a busy machine
    ledger.assert_once(jobs)
    for job in jobs:
        assert [attempt.outcome for attempt in ledger.show(job).attempts] == ["rescued"]
        assert ledger.used_attempts(job) == 1, "to be lost without blame costs no attempt"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_worker_killed_around_the_commit_of_a_batch_has_completed_all_its_jobs_or_none(ledger, workers, point):
    jobs = enqueue(ledger)
    worker = workers.start(failpoints=f"{point}=kill")
    assert worker.end() == -signal.SIGKILL, worker.text
    is_committed = point == "after_commit" or ledger.store.sends_commit_with_completion
    assert {ledger.state(job) for job in jobs} == {JobState.COMPLETED if is_committed else JobState.RUNNING}
    assert len(ledger.store.effects()) == (SIZE if is_committed else 0)
    workers.run_until_empty()
    ledger.assert_once(jobs)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_claim", "before_effect", "before_commit"])
def test_a_worker_frozen_in_the_middle_of_a_batch_writes_nothing_twice_when_it_goes_on(ledger, workers, point):
    jobs = enqueue(ledger)
    frozen = workers.start(failpoints=f"{point}=stop@1")
    frozen.stopped()
    other = workers.started()
    if point == "before_commit" and ledger.store.sends_commit_with_completion:  # it has committed already
        ledger.completed(*jobs)
    elif point == "after_claim" or not ledger.store.one_writer:  # else its transaction keeps everybody waiting
        ledger.completed(*jobs)  # past the lease: the other one has rescued them
        assert frozen.pid not in {effect.pid for effect in ledger.store.effects()}
    frozen.signal(signal.SIGCONT)
    later = enqueue(ledger)
    ledger.completed(*jobs, *later)
    for worker in (frozen, other):
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
    ledger.assert_once([*jobs, *later])
