"""How the machine stops: what it lets go on, gives back, and at last leaves behind."""

from __future__ import annotations

import pytest
from tests.unit.worker.driver import leased
from tests.unit.worker.machines import DONE, begin, machine, with_jobs

from holdfast.model.outcome import Completed
from holdfast.store.values import Verdict
from holdfast.worker.decision import Exit, Why


def test_a_stopped_worker_gives_back_what_has_not_begun_and_lets_handlers_go_on():
    m = with_jobs(2, concurrency=1, drain_timeout=30.0)
    job = begin(m)
    m.stop(1.0)
    decision = m.decide(1.0)
    assert decision.release_unstarted == [leased(2).lease]
    assert (decision.claim, decision.abort, decision.exit) == (0, [], None)
    m.released(1.1, decision.release_unstarted)
    m.ended(5.0, job, Completed())
    m.flushed(5.1, m.decide(5.0).flush or [], [DONE])
    assert m.decide(5.1).exit is Exit.DRAINED


def test_jobs_of_a_claim_that_was_in_flight_at_the_stop_are_given_back():
    m = machine()
    asked = m.decide(0.0).claim
    m.stop(0.1)
    assert m.decide(0.1).exit is None
    m.claimed(0.2, [leased(1)], asked=asked, sent_at=0.0)
    assert m.take() is None
    assert m.decide(0.2).release_unstarted == [leased(1).lease]


@pytest.mark.parametrize("second_signal", [True, False])
def test_after_a_second_stop_or_the_time_to_drain_handlers_are_aborted_and_their_jobs_given_back(second_signal):
    m = with_jobs(2, drain_timeout=30.0, abort_grace=2.0)
    quick, stuck = begin(m), begin(m)
    m.stop(1.0)
    now = 31.0
    if second_signal:
        now = 2.0
        m.stop(now)
    assert m.decide(now).abort == [(quick, Why.SHUTDOWN), (stuck, Why.SHUTDOWN)]
    m.ended(now, quick, None)
    decision = m.decide(now)
    assert decision.release_started == [quick.lease]
    m.released(now, [quick.lease])
    assert m.decide(now + 1.9).release_started == []
    assert m.decide(now + 2.1).release_started == [stuck.lease]
    m.released(now + 2.2, [stuck.lease])
    assert m.decide(now + 2.2).exit is Exit.RELEASED
    assert int(Exit.RELEASED) == 3


def test_a_handler_that_is_left_behind_is_told_that_its_job_is_held_no_longer():
    m = with_jobs(2, abort_grace=2.0)
    deaf, settled = begin(m), begin(m)
    m.stop(1.0)
    m.stop(1.0)
    m.decide(1.0)
    m.holdings.settled(settled.seq)
    decision = m.decide(3.0)
    assert decision.release_started == [deaf.lease]
    assert decision.abort == [(deaf, Why.LEASE_LOST)], "and who has completed its job is left in peace"


def test_a_handler_left_behind_in_its_own_transaction_is_told_too():
    m = with_jobs(1, abort_grace=2.0)
    job = begin(m)
    m.holdings.settling(job.seq)
    m.stop(1.0)
    m.stop(1.0)
    m.decide(1.0)
    assert m.decide(3.0).abort == []
    decision = m.decide(5.0)
    assert (decision.abort, decision.exit) == ([(job, Why.LEASE_LOST)], Exit.RELEASED)


def test_leases_that_cannot_be_given_back_are_at_last_left_to_expire():
    m = with_jobs(1)
    m.stop(0.0)
    now, tries = 0.0, 0
    while (decision := m.decide(now)).exit is None:
        if decision.release_unstarted:
            tries += 1
            m.release_failed(now, decision.release_unstarted)
        now += decision.wait or 0.01
    assert (tries, decision.exit, m.status().totals.abandoned) == (5, Exit.RELEASED, 1)


def test_a_worker_that_must_end_leaves_a_finish_that_is_delayed_again_and_again_to_the_end_of_its_lease():
    m = with_jobs(1, drain_timeout=3.0)
    m.ended(0.1, begin(m), Completed())
    now, flush = 0.1, m.decide(0.1).flush or []
    m.stop(0.1)
    while (decision := m.decide(now)).exit is None:
        assert now < 60.0
        if flush := decision.flush or flush:
            m.flushed(now, flush, [Verdict.DELAYED])
            flush = []
        else:
            now += decision.wait or 0.0
    assert 3.0 <= now < 10.0
    assert decision.exit is Exit.RELEASED
    assert m.status().totals.abandoned == 1
