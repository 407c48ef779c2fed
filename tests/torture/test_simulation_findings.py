"""What the simulation has found in the worker's machine, each as the shortest story that shows it."""

from __future__ import annotations

from holdfast.model.job import LeasedJob
from holdfast.worker.decision import Exit
from holdfast.worker.machine import Machine
from holdfast.worker.settings import Settings


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
        enqueued_us=0,
        turn_us=0,
        attempt=1,
        excused=0,
        interrupted=0,
        lost=0,
        fence=fence,
    )


def test_a_job_that_its_abandoned_handler_completes_before_it_is_given_back_counts_as_completed():
    """Two handlers are aborted. One unwinds; the other is left behind, and commits before its release is sent."""
    machine = Machine(Settings(concurrency=2, abort_grace=1.0))
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
