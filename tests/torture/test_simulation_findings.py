"""What the simulation has found in the worker's machine, each as the shortest story that shows it."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Failure, Retried
from holdfast.store.values import Promotion, Verdict
from holdfast.worker.decision import Exit, WorkerPhase
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig


def leased(seq: int, fence: int) -> LeasedJob:
    return LeasedJob(
        id=f"job-{seq}",
        seq=seq,
        queue="default",
        task="work",
        payload="{}",
        headers=None,
        priority=0,
        max_attempts=5,
        timeout=None,
        _enqueued_us=0,
        turn=0,
        attempt=1,
        excused=0,
        interrupted=0,
        lost=0,
        fence=fence,
    )


def test_a_job_that_its_abandoned_handler_completes_before_it_is_given_back_counts_as_completed():
    """Two handlers are aborted. One unwinds; the other is left behind, and commits before its release is sent."""
    machine = Machine(WorkerConfig(concurrency=2, abort_grace=1.0))
    assert machine.decide(0.0).claim == 2
    obedient, deaf = leased(1, 7), leased(2, 7)
    machine.claimed(0.0, [obedient, deaf], asked=2, sent_at=0.0)
    assert [machine.take(), machine.take()] == [obedient, deaf]
    machine.stop(1.0)
    machine.stop(1.0)
    machine.decide(1.0)
    machine.ended(1.5, obedient, None)
    assert machine.decide(1.5).release_started == [obedient.lease]

    assert machine.decide(2.0).release_started == []  # the deaf one is to be given back after that answer
    machine.holdings.settled(deaf.seq)
    machine.released(2.5, [obedient.lease])
    decision = machine.decide(2.5)

    totals = machine.status().totals
    assert (decision.exit, decision.release_started) == (Exit.RELEASED, [])
    assert (totals.completed, totals.released) == (1, 1)


def asks_whether_all_is_done(machine: Machine, now: float) -> bool:
    """Answer whatever else it asks: there is nothing to do."""
    decision = machine.decide(now)
    if decision.claim:
        machine.claimed(now, [], asked=decision.claim, sent_at=now)
    if decision.promote:
        machine.promoted(now, Promotion(0, None))
    if decision.rescue is not None:
        machine.rescued(now, 0, asked=100)
    if decision.prune:
        machine.pruned(now, 0, 1000)
    return decision.check_empty


def test_a_worker_until_empty_waits_for_the_verdict_on_a_job_that_it_has_claimed_anew_meanwhile():
    """The answer to a flush is late. Its job comes up again, is claimed here and completed before that answer."""
    machine = Machine(WorkerConfig(concurrency=1, until_empty=True, poll_interval=0.5))
    asked = machine.decide(0.0).claim
    first, second = leased(1, 7), leased(1, 9)
    machine.claimed(0.0, [first], asked=asked, sent_at=0.0)
    machine.promoted(0.0, Promotion(0, None))
    assert machine.take() is first
    machine.ended(0.1, first, Retried(timedelta(0), Failure("E", "m")))
    decision = machine.decide(0.1)
    flush = decision.flush
    assert flush is not None
    assert decision.prune
    machine.pruned(0.1, 0, 1000)

    machine.claimed(0.6, [second], asked=decision.claim, sent_at=0.6)
    assert machine.take() is second
    machine.holdings.settled(second.seq)
    machine.ended(0.7, second, None)
    assert not any(asks_whether_all_is_done(machine, now / 10) for now in range(8, 30))
    machine.flushed(3.0, flush, [Verdict.DONE])
    now = next(now / 10 for now in range(30, 60) if asks_whether_all_is_done(machine, now / 10))
    machine.emptiness(now, is_empty=True)

    assert machine.decide(now).exit is Exit.DRAINED
    totals = machine.status().totals
    assert (totals.completed, totals.retried, totals.lost) == (1, 1, 0)


def test_a_worker_until_empty_does_not_end_by_a_look_of_before_it_was_handed_work():
    """The answer is late. Meanwhile a job comes in, is claimed here, fails, and is to be run again in a while."""
    machine = Machine(WorkerConfig(concurrency=1, until_empty=True, poll_interval=0.5))
    sent_at = next(now / 10 for now in range(10) if asks_whether_all_is_done(machine, now / 10))
    machine.woken(sent_at)
    asked = machine.decide(sent_at).claim
    job = leased(1, 7)
    machine.claimed(1.0, [job], asked=asked, sent_at=1.0)
    assert machine.take() is job
    machine.ended(1.0, job, Retried(timedelta(seconds=5), Failure("E", "m")))
    decision = machine.decide(1.0)
    assert decision.flush is not None
    machine.flushed(1.0, decision.flush, [Verdict.DONE])
    machine.claimed(1.0, [], asked=decision.claim, sent_at=1.0)

    machine.emptiness(1.1, is_empty=True)
    assert machine.status().phase is WorkerPhase.RUNNING

    again = next(now / 10 for now in range(12, 40) if asks_whether_all_is_done(machine, now / 10))
    machine.emptiness(again, is_empty=True)
    assert machine.status().phase is WorkerPhase.ENDED
