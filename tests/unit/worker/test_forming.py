"""Batches in the machine: collected within a time, begun in one slot, ended each by itself. No clock but numbers."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.unit.worker.driver import leased

from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed, Failure, Retried
from holdfast.store.values import Finish
from holdfast.worker.decision import Why
from holdfast.worker.forming import BatchSize
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig

LINGER = 0.5


def batched(seq: int, **changes: object) -> LeasedJob:
    return msgspec.structs.replace(leased(seq), task="charge", **changes)


def with_batches(*jobs: LeasedJob, most: int = 3, now: float = 0.0, **settings) -> Machine:
    m = Machine(WorkerConfig(**settings), {"charge": BatchSize(most, LINGER)})
    asked = m.decide(now).claim
    m.claimed(now, jobs, asked=asked, sent_at=now)
    return m


def seqs(jobs: list[LeasedJob]) -> list[int]:
    return [job.seq for job in jobs]


def test_a_full_batch_begins_at_once_and_the_rest_waits_for_more():
    m = with_batches(*(batched(seq) for seq in range(1, 5)))
    assert seqs(m.take_batch(0.0)) == [1, 2, 3]
    assert m.take_batch(0.0) == []
    assert m.take() is None


def test_a_batch_that_is_not_full_begins_when_its_first_job_has_waited():
    m = with_batches(batched(1), poll_interval=9.0)
    assert m.take_batch(0.0) == []
    decision = m.decide(0.0)
    assert decision.wait is not None
    assert decision.wait <= LINGER
    m.woken(0.3)
    asked = m.decide(0.3).claim
    m.claimed(0.3, [batched(2)], asked=asked, sent_at=0.3)
    assert m.take_batch(0.4) == []
    assert m.decide(0.4).wait == pytest.approx(0.1)
    assert seqs(m.take_batch(0.5)) == [1, 2]


def test_a_batch_takes_one_slot():
    m = with_batches(*(batched(seq) for seq in range(1, 8)), leased(8), leased(9), concurrency=2)
    assert len(m.take_batch(0.0)) == 3
    assert m.take() == leased(8)
    assert m.take() is None
    assert m.take_batch(0.0) == []


def test_its_slot_is_free_when_the_batch_has_ended():
    m = with_batches(*(batched(seq) for seq in range(1, 7)), concurrency=1)
    first = m.take_batch(0.0)
    m.batch_ended(0.1, first, [Completed()] * 3, [])
    assert seqs(m.take_batch(0.1)) == [4, 5, 6]
    assert [finish.lease.seq for finish in m.decide(9.0).flush or ()] == [1, 2, 3]


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"lost": 1}, {"max_attempts": 1}], ids=str)
def test_a_job_that_failed_or_was_lost_or_is_in_its_last_attempt_runs_alone(changes):
    m = with_batches(batched(1), batched(2, **changes), batched(3))
    assert seqs(m.take_batch(LINGER)) == [1, 3]
    assert m.take() == batched(2, **changes)


def test_a_released_job_may_share_a_batch_again():
    m = with_batches(batched(1, attempt=3, excused=2), batched(2))
    assert seqs(m.take_batch(LINGER)) == [1, 2]


def test_after_a_claim_of_batched_jobs_a_slot_takes_as_many_as_a_batch():
    m = Machine(WorkerConfig(concurrency=2, batch_max=500), {"charge": BatchSize(100, LINGER)})
    asked = m.decide(0.0).claim
    assert asked == 2
    m.claimed(0.0, [batched(1), batched(2)], asked=asked, sent_at=0.0)
    assert m.decide(0.0).claim == 2 * 100 - 2


def test_jobs_of_other_tasks_are_not_fetched_in_such_numbers():
    m = Machine(WorkerConfig(concurrency=2), {"charge": BatchSize(100, LINGER)})
    asked = m.decide(0.0).claim
    m.claimed(0.0, [leased(1), leased(2)], asked=asked, sent_at=0.0)
    first = m.take()
    assert first is not None
    m.take()
    m.ended(0.1, first, Completed())
    m.woken(0.1)
    assert m.decide(0.1).claim < 10


def test_batches_and_other_jobs_take_turns():
    m = with_batches(*(batched(seq) for seq in range(1, 10)), *(leased(seq) for seq in range(10, 13)), concurrency=1)
    begun: list[str] = []
    for now in range(1, 6):
        jobs = m.take_batch(now)
        single = None if jobs else m.take()
        if jobs:
            begun.append("batch")
            m.batch_ended(now, jobs, [None] * len(jobs), [])
        elif single is not None:
            begun.append("job")
            m.ended(now, single, None)
    assert begun == ["batch", "job", "batch", "job", "batch"]


def test_a_lost_or_cancelled_job_leaves_the_batch_that_forms():
    m = with_batches(batched(1), batched(2), batched(3), batched(4), most=9)
    m.lost(0.1, [batched(1).lease])
    m.cancel_asked(0.1, [batched(2).lease])
    m.holdings.lost([batched(3).lease])  # the loop has not heard of it yet
    assert seqs(m.take_batch(LINGER)) == [4]
    assert m.status().totals.lost == 2


def test_a_stopping_worker_releases_the_batch_that_forms():
    m = with_batches(batched(1), batched(2))
    m.stop(0.1)
    assert m.decide(0.1).release_unstarted == [batched(1).lease, batched(2).lease]
    assert m.take_batch(9.0) == []


def test_jobs_whose_leases_are_too_old_leave_the_batch_that_forms():
    m = with_batches(batched(1), batched(2), lease=30.0, most=9)
    m.holdings.extended([batched(2).lease], 15.0)
    assert m.decide(23.0).release_unstarted == [batched(1).lease]
    assert seqs(m.take_batch(24.0)) == [2]


def test_a_batch_that_waits_too_long_for_a_slot_is_released_for_idle_workers():
    m = with_batches(leased(1), batched(2), concurrency=1, release_timeout=1.0)
    m.take()
    assert m.decide(0.0).release_unstarted == []
    assert m.decide(1.0).release_unstarted == [batched(2).lease]


def test_a_lost_lease_of_one_job_keeps_the_slot_until_the_batch_ends():
    m = with_batches(*(batched(seq) for seq in range(1, 4)), leased(4), concurrency=1)
    jobs = m.take_batch(0.0)
    m.lost(0.1, [jobs[0].lease])
    assert m.decide(0.1).abort == [(jobs[0], Why.LEASE_LOST)]
    assert m.take() is None
    m.batch_ended(0.2, jobs, [Completed()] * 3, [])
    assert m.take() == leased(4)
    assert [finish.lease.seq for finish in m.decide(9.0).flush or ()] == [2, 3]


def test_outcomes_that_the_transaction_has_written_are_counted_as_what_they_are():
    m = with_batches(*(batched(seq) for seq in range(1, 4)))
    jobs = m.take_batch(0.0)
    retried = Retried(timedelta(seconds=5), Failure("ValueError", "no"))
    written = [Finish(jobs[0].lease, retried), *(Finish(job.lease, Completed()) for job in jobs[1:])]
    m.batch_ended(0.1, jobs, [None] * 3, written)
    totals = m.status().totals
    assert (totals.completed, totals.retried) == (2, 1)
    assert len(m.holdings) == 0
    assert not m.decide(0.1).flush
