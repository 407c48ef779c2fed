from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from tests.unit.worker.driver import finish_of, leased
from tests.unit.worker.machines import DONE, LOST, begin, machine, with_jobs

from holdfast.model.outcome import Cancelled, Completed, Failure, Retried
from holdfast.model.totals import Totals
from holdfast.store.values import Promotion
from holdfast.worker.decision import Exit, Why, WorkerPhase
from holdfast.worker.machine import Machine


def test_a_new_worker_claims_as_many_jobs_as_it_has_slots():
    assert machine(concurrency=7).decide(0.0).claim == 7


def test_a_wake_that_arrives_while_a_claim_is_in_flight_leads_to_another_claim():
    m = machine()
    asked = m.decide(0.0).claim
    m.woken(0.1)
    assert m.decide(0.1).claim == 0
    m.claimed(0.2, [], asked=asked, sent_at=0.0)
    assert m.decide(0.2).claim == asked


def test_no_more_jobs_are_taken_than_there_are_slots():
    m = with_jobs(3, concurrency=2)
    assert [m.take(), m.take(), m.take()] == [leased(1), leased(2), None]


def test_a_job_whose_lease_was_lost_while_it_waited_is_not_begun():
    m = with_jobs(2)
    m.holdings.lost([leased(1).lease])
    assert m.take() == leased(2)
    assert m.status().totals.lost == 1
    m.lost(0.1, [leased(1).lease])
    assert m.status().totals.lost == 1


def test_jobs_whose_lease_may_be_over_when_their_claim_is_answered_are_given_back_and_not_begun():
    m = machine(lease=30.0)
    asked = m.decide(0.0).claim
    m.claimed(45.0, [leased(1), leased(2)], asked=asked, sent_at=0.0)
    assert m.decide(45.0).release_unstarted == [leased(1).lease, leased(2).lease]
    assert m.take() is None
    assert len(m.holdings) == 2, "extended until the store has answered: it may have been in time"


def test_a_job_that_waited_while_its_lease_could_not_be_extended_is_given_back_and_not_begun():
    m = with_jobs(3, concurrency=1, lease=30.0, release_timeout=100.0)
    job = begin(m)
    m.holdings.extended([leased(3).lease], 15.0)
    assert m.decide(22.0).release_unstarted == []
    assert m.decide(23.0).release_unstarted == [leased(2).lease]
    m.ended(24.0, job, Completed())
    m.decide(24.0)
    assert m.take() == leased(3)
    assert m.decide(200.0).release_unstarted == []


def test_a_finish_is_written_at_once_when_nothing_else_is_runnable():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    assert m.decide(0.1).flush == [finish_of(leased(1))]


def test_a_finish_waits_some_milliseconds_for_others_while_handlers_run():
    m = with_jobs(2, flush_after=0.005)
    first, _ = begin(m), begin(m)
    m.ended(0.1, first, Completed())
    decision = m.decide(0.1)
    assert decision.flush is None
    assert decision.wait == pytest.approx(0.005)
    assert m.decide(0.1051).flush == [finish_of(leased(1))]


def test_enough_finishes_are_written_without_waiting():
    m = with_jobs(4, flush_rows=2)
    jobs = [begin(m) for _ in range(4)]
    m.ended(0.1, jobs[0], Completed())
    assert m.decide(0.1).flush is None
    assert m.ended(0.1, jobs[1], Completed())
    assert len(m.decide(0.1).flush or []) == 2


def test_finishes_stay_held_until_the_store_has_answered_and_are_repeated_after_a_failure():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    flush = m.decide(0.1).flush
    assert flush
    m.flush_failed(0.2, flush)
    assert m.holdings.due(20.0) == [leased(1).lease]
    assert m.decide(0.25).flush is None
    assert m.decide(0.31).flush == flush
    m.flushed(0.4, flush, [DONE])
    assert len(m.holdings) == 0
    assert m.status().totals.completed == 1


def test_a_stale_verdict_drops_the_job_and_is_counted():
    m = with_jobs(2)
    for _ in range(2):
        m.ended(0.1, begin(m), Completed())
    m.flushed(0.2, m.decide(0.1).flush or [], [LOST, DONE])
    totals = m.status().totals
    assert (len(m.holdings), totals.lost, totals.completed) == (0, 1, 1)


def test_a_job_settled_by_a_task_that_its_handler_left_behind_is_counted_once_when_its_finish_is_answered():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    flush = m.decide(0.1).flush or []
    m.holdings.settled(1)
    m.flushed(0.2, flush, [DONE])
    assert (len(m.holdings), m.status().totals.completed) == (0, 1)


def test_a_lost_lease_aborts_the_handler_and_its_end_is_not_written():
    m = with_jobs(1)
    job = begin(m)
    m.lost(0.1, [job.lease])
    assert m.decide(0.1).abort == [(job, Why.LEASE_LOST)]
    m.ended(0.2, job, Completed())
    assert m.decide(0.2).flush is None
    assert m.status().totals.lost == 1


def test_a_handler_whose_lease_was_lost_keeps_its_slot_until_it_ends():
    m = with_jobs(2, concurrency=1)
    job = begin(m)
    m.lost(0.1, [job.lease])
    assert m.take() is None
    m.ended(0.2, job, None)
    assert m.take() == leased(2)


def test_a_lost_verdict_for_a_job_in_its_own_transaction_is_ignored():
    m = with_jobs(1)
    job = begin(m)
    m.holdings.settling(job.seq)
    m.lost(0.1, [job.lease])
    assert m.decide(0.1).abort == []
    m.holdings.settled(job.seq)
    m.ended(0.2, job, None)
    assert (m.status().totals.completed, m.status().totals.lost) == (1, 0)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_handler_that_ends_leaves_no_mark_of_settling_behind(is_lost):
    m = with_jobs(1)
    job = begin(m)
    if is_lost:
        m.lost(0.1, [job.lease])
    m.holdings.settling(job.seq)
    m.ended(0.2, job, Completed())
    assert m.holdings.settling_seqs == set()


def test_a_lost_verdict_for_a_finish_on_its_way_is_left_to_the_answer_of_that():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    flush = m.decide(0.1).flush or []
    m.lost(0.2, [leased(1).lease])
    m.flushed(0.3, flush, [DONE])
    assert (m.status().totals.completed, m.status().totals.lost) == (1, 0)


def test_a_finish_that_may_have_been_written_is_repeated_even_if_its_lease_is_called_lost():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    flush = m.decide(0.1).flush or []
    m.flush_failed(0.2, flush)
    m.lost(0.25, [leased(1).lease])
    assert m.decide(0.4).flush == flush
    m.flushed(0.5, flush, [DONE])
    assert (m.status().totals.completed, m.status().totals.lost) == (1, 0)


def test_a_waiting_job_claimed_anew_is_begun_once_under_the_later_fence():
    m = with_jobs(1)
    m.claimed(0.7, [leased(1, fence=9)], asked=1, sent_at=0.6)
    assert [m.take(), m.take()] == [leased(1, fence=9), None]


def test_a_job_claimed_anew_under_a_later_fence_displaces_its_own_earlier_attempt():
    m = with_jobs(1)
    old = begin(m)
    asked = m.decide(0.6).claim
    m.claimed(0.7, [leased(1, fence=9)], asked=asked, sent_at=0.6)
    assert m.decide(0.7).abort == [(old, Why.LEASE_LOST)]
    assert m.take() == leased(1, fence=9)
    m.ended(0.8, old, Completed())
    assert m.holdings.jobs == {1: leased(1, fence=9)}
    assert m.decide(0.8).flush is None


def test_an_end_reported_twice_is_an_error():
    m = with_jobs(1)
    job = begin(m)
    m.ended(0.1, job, Completed())
    with pytest.raises(ValueError, match="job-1"):
        m.ended(0.1, job, Completed())


def test_a_job_asked_to_cancel_is_aborted_once():
    m = with_jobs(1)
    job = begin(m)
    m.cancel_asked(0.1, [job.lease])
    m.cancel_asked(0.1, [job.lease])
    assert m.decide(0.1).abort == [(job, Why.CANCEL_ASKED)]
    m.cancel_asked(0.2, [job.lease])
    assert m.decide(0.2).abort == []


def test_a_job_asked_to_cancel_before_it_began_ends_as_cancelled_without_running():
    m = with_jobs(1)
    m.cancel_asked(0.1, [leased(1).lease])
    assert m.take() is None
    flush = m.decide(0.1).flush
    assert flush
    assert isinstance(flush[0].outcome, Cancelled)


def test_jobs_that_wait_behind_busy_slots_are_given_back_to_idle_workers():
    m = with_jobs(3, concurrency=1, release_timeout=1.0)
    begin(m)
    assert m.decide(0.1).release_unstarted == []
    assert m.decide(1.05).release_unstarted == []
    assert m.decide(1.2).release_unstarted == [leased(2).lease, leased(3).lease]


def test_finishes_that_pile_up_stop_claims():
    m = with_jobs(1)
    m.ended(0.1, begin(m), Completed())
    m.flush_failed(0.2, m.decide(0.1).flush or [])
    m.woken(0.2)
    assert m.decide(0.25).claim == 0


def test_a_worker_until_empty_asks_when_idle_and_ends_when_nothing_is_left():
    m = machine(until_empty=True, poll_interval=0.5)
    decision = m.decide(0.0)
    m.promoted(0.0, Promotion(0, None))
    m.claimed(0.0, [], asked=decision.claim, sent_at=0.0)
    assert m.decide(0.0).check_empty
    m.emptiness(0.1, is_empty=False)
    assert m.decide(0.1).prune
    m.pruned(0.1, 0, 1000)
    assert not m.decide(0.4).check_empty
    assert m.decide(0.51).claim
    m.claimed(0.52, [], asked=10, sent_at=0.51)
    assert m.decide(0.52).check_empty
    m.emptiness(0.6, is_empty=True)
    assert m.decide(0.6).exit is Exit.DRAINED
    assert m.status().phase is WorkerPhase.ENDED


def test_a_wake_between_the_check_and_its_answer_keeps_a_worker_until_empty_alive():
    m = machine(until_empty=True)
    decision = m.decide(0.0)
    m.promoted(0.0, Promotion(0, None))
    m.claimed(0.0, [], asked=decision.claim, sent_at=0.0)
    assert m.decide(0.0).check_empty
    m.woken(0.05)
    m.emptiness(0.1, is_empty=True)
    decision = m.decide(0.1)
    assert decision.exit is None
    assert decision.claim


def test_a_retried_job_is_promoted_when_it_is_due_and_then_claimed():
    m = with_jobs(1)
    m.promoted(0.0, Promotion(0, None))
    m.ended(0.1, begin(m), Retried(timedelta(seconds=0.3), Failure("E", "m")))
    decision = m.decide(0.1)
    assert decision.prune
    m.pruned(0.1, 0, 1000)
    m.flushed(0.1, decision.flush or [], [DONE])
    assert m.decide(0.1).wait == pytest.approx(0.3)
    assert m.decide(0.41).promote
    m.promoted(0.42, Promotion(1, None))
    assert m.decide(0.42).claim


def test_pruning_goes_on_at_once_while_it_finds_a_full_batch():
    m = machine(prune_every=60.0)
    m.decide(0.0)
    m.promoted(0.0, Promotion(0, None))
    assert m.decide(0.0).prune
    m.pruned(0.1, 1000, 1000)
    assert m.decide(0.1).prune
    m.pruned(0.2, 3, 1000)
    assert not m.decide(0.3).prune


def rescues(m: Machine, until: float, *, outage: tuple[float, float] = (0.0, 0.0)) -> list[tuple[float, float]]:
    """Run an otherwise idle worker; return when it rescued, and with how much access."""
    now, seen = 0.0, []
    while now < until:
        decision = m.decide(now)
        down = outage[0] < now < outage[1]
        if decision.claim:
            m.claim_failed(now) if down else m.claimed(now, [], asked=decision.claim, sent_at=now)
        if decision.rescue is not None:
            seen.append((now, decision.rescue.total_seconds()))
        if decision.promote or decision.prune or decision.rescue is not None:
            if down:
                m.maintenance_failed(now)
            elif decision.promote:
                m.promoted(now, Promotion(0, None))
            elif decision.prune:
                m.pruned(now, 0, 1000)
            else:
                m.rescued(now, 0, asked=200)
        now += max(decision.wait or 0.0, 0.001)
    return seen


def test_rescue_recurs_and_one_falls_on_the_moment_when_half_a_lease_of_access_is_reached():
    seen = rescues(machine(lease=30.0, rescue_every=4.0), 30.0)
    assert any(15.0 <= access < 15.1 for _, access in seen)
    assert all(later[0] - earlier[0] <= 4.1 for earlier, later in pairwise(seen))


def test_after_an_outage_access_is_counted_anew():
    seen = rescues(machine(lease=8.0), 30.0, outage=(10.0, 14.0))
    assert all(access <= now - 14.0 for now, access in seen if now > 14.0)
    assert any(access >= 4.0 for now, access in seen if now > 14.0)


def test_a_worker_that_was_stopped_itself_does_not_rescue_before_it_has_access_again():
    m = machine(lease=8.0)
    rescues(m, 10.0)
    decision = m.decide(100.0)
    assert decision.rescue is None


def test_totals_are_told_in_words():
    assert str(Totals(completed=12_345, lost=2)) == "12,345 completed, 2 lost"
    assert str(Totals()) == "no jobs"
