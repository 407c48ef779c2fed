"""Workers that stand still for longer than their lease, and then go on as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time

import pytest

from holdfast.model.job import JobState

INSIDE = ("before_effect", "after_effect", "before_commit")


def end(worker) -> None:
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text


def test_a_worker_that_was_frozen_after_its_claim_writes_nothing_when_it_goes_on(ledger, workers):
    job = ledger.enqueue("pay")
    frozen = workers.start(failpoints="after_claim=stop@1")
    frozen.stopped()
    other = workers.started()
    ledger.completed(job)  # past the lease: the other one has rescued it
    (effect,) = ledger.effects_of(job)
    assert effect.pid != frozen.pid
    frozen.signal(signal.SIGCONT)
    later = ledger.enqueue("pay")
    ledger.completed(later)
    end(frozen)
    end(other)
    assert ledger.effects_of(job) == [effect]
    ledger.assert_once([job, later])


def test_a_handler_that_was_frozen_before_its_transaction_writes_nothing_when_it_goes_on(ledger, workers, gate):
    barrier, fresh = gate("frozen"), gate("fresh")
    job = ledger.enqueue("pay_late_in_thread", gate=barrier.path)
    frozen = workers.started()
    barrier.reached()
    frozen.signal(signal.SIGSTOP)
    frozen.stopped()
    other = workers.started()
    other.line(rf"began {job} ")  # the lease is over, and the job rescued
    # It waits at the same gate as the frozen one, or is about to.
    barrier.keep_open(lambda: ledger.state(job) == JobState.COMPLETED, "the rescued job is completed")
    (effect,) = ledger.effects_of(job)
    assert effect.pid != frozen.pid
    frozen.signal(signal.SIGCONT)
    later = ledger.enqueue("pay_late", gate=fresh.path)
    fresh.open()
    ledger.completed(later)
    end(frozen)
    end(other)
    assert ledger.effects_of(job) == [effect]
    ledger.assert_once([job, later])


@pytest.mark.slow
@pytest.mark.parametrize("point", INSIDE)
@pytest.mark.parametrize("task", ["pay", "pay_in_thread"])
def test_a_worker_frozen_inside_its_transaction_doubles_nothing_and_loses_nothing(ledger, workers, point, task):
    job = ledger.enqueue(task)
    frozen = workers.start(failpoints=f"{point}=stop@1")
    frozen.stopped()
    other = workers.started()
    if ledger.store.one_writer:
        # The frozen transaction holds the one write lock: nobody can take the job, or do anything, until it goes on.
        ledger.expired(job, 1.5)
        assert ledger.state(job) == JobState.RUNNING
        assert ledger.effects_of(job) == []
    else:
        ledger.completed(job)
    frozen.signal(signal.SIGCONT)
    ledger.completed(job)
    later = ledger.enqueue("pay")
    ledger.completed(later)
    end(frozen)
    end(other)
    ledger.assert_once([job, later])


@pytest.mark.slow
def test_workers_frozen_at_random_double_nothing_and_lose_nothing(ledger, workers):
    chance = random.Random(20260101)
    jobs = [job for _ in range(150) for task in ("pay", "pay_in_thread") for job in ledger.enqueue_many(task, [{}, {}])]
    both = [workers.started(concurrency=4, prefetch_max=20) for _ in range(2)]
    for _ in range(4):
        victim = chance.choice(both)
        time.sleep(chance.uniform(0.0, 0.2))  # where it is then, nobody knows
        victim.signal(signal.SIGSTOP)
        victim.stopped()
        time.sleep(chance.uniform(1.2, 3.0) * ledger.store.lease)  # the length of the freeze is the fault itself
        victim.signal(signal.SIGCONT)
        jobs += ledger.enqueue_many("pay", [{}] * 50)
    ledger.completed(*jobs, within=60.0)
    for worker in both:
        end(worker)
    ledger.assert_once(jobs)


def test_a_worker_that_was_frozen_past_the_limit_of_its_job_ends_the_attempt_and_not_itself(ledger, workers, gate):
    job = ledger.enqueue("pay_late", {"timeout": 0.5, "max_attempts": 1}, gate=gate("late").path)
    worker = workers.start(lease=30.0, stuck_grace=0.4)
    worker.line(rf"began {job}")
    worker.signal(signal.SIGSTOP)
    worker.stopped()
    time.sleep(3.0)  # a frozen process has no event to wait for
    worker.signal(signal.SIGCONT)
    assert ledger.ended(job) == JobState.FAILED
    assert "time limit" in (ledger.show(job).job.reason or "")
    end(worker)
