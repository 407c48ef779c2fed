"""Finishes that the store has delayed, because another client keeps the key of their job locked."""

from __future__ import annotations

import pytest
from tests.unit.worker.driver import leased
from tests.unit.worker.machines import DONE, begin, with_jobs

from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.worker.machine import Machine


def _delayed(*, jobs: int = 2) -> tuple[Machine, list[Finish]]:
    """A machine whose first finish was delayed, all others written."""
    m = with_jobs(jobs)
    for _ in range(jobs):
        m.ended(0.1, begin(m), Completed())
    flush = m.decide(0.1).flush or []
    m.flushed(0.2, flush, [Verdict.DELAYED, *[DONE] * (jobs - 1)])
    return m, flush


def test_a_delayed_finish_stays_held_and_is_sent_again_later_while_jobs_are_claimed():
    m, flush = _delayed()
    assert list(m.holdings.jobs) == [1]
    assert m.status().totals.completed == 1
    m.woken(0.2)
    decision = m.decide(0.2)
    assert decision.claim > 0
    assert decision.flush is None
    assert m.decide(0.25).wait == pytest.approx(0.05)
    assert m.decide(0.31).flush == flush[:1]
    m.flushed(0.4, flush[:1], [DONE])
    assert len(m.holdings) == 0
    assert m.status().totals.completed == 2


def test_a_finish_that_is_delayed_again_and_again_is_sent_ever_more_rarely():
    m, flush = _delayed()
    now, pauses = 0.2, []
    for _ in range(8):
        due_at = m.jobs.finishes.due_at(idle=True)
        pauses.append(round(due_at - now, 1))
        now = due_at
        assert m.decide(now).flush == flush[:1]
        m.flushed(now, flush[:1], [Verdict.DELAYED])
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_lost_verdict_for_a_delayed_finish_is_left_to_its_next_answer():
    """An earlier request for it, whose reply was lost, may be what has ended the lease."""
    m, flush = _delayed()
    m.lost(0.25, [leased(1).lease])
    assert m.decide(0.31).flush == flush[:1]
    m.flushed(0.4, flush[:1], [DONE])
    assert m.status().totals.lost == 0


def test_delayed_finishes_that_pile_up_stop_claims():
    m = with_jobs(9, concurrency=9, batch_max=4)
    for _ in range(9):
        m.ended(0.1, begin(m), Completed())
    for _ in range(3):
        flush = m.decide(0.1).flush or []
        m.flushed(0.1, flush, [Verdict.DELAYED] * len(flush))
    m.woken(0.1)
    assert len(m.jobs.finishes.delayed) == 9
    assert m.decide(0.1).claim == 0
