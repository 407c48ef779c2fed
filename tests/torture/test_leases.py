from __future__ import annotations

from typing import Any

import pytest
from tests.torture.stories import SECOND, A, B, Story, done_well

from holdfast.torture.events import (
    CancelCalled,
    Clock,
    ExtendAnswered,
    Extended,
    Finished,
    ObservedOutcome,
    ProgressAnswered,
    Released,
    Takes,
)


def taken_over(at: float, *, story: Story | None = None, direct: bool = False) -> Story:
    """Worker A begins a job, and B claims it at some second; B completes it."""
    story = story or Story().enqueued(1, "j1", takes=Takes.NOTHING)
    story.claimed(2, "j1", fence=3, direct=direct).began(2.1, "j1", fence=3)
    story.claimed(at, "j1", fence=5, attempt=2, process=B).began(at + 0.1, "j1", fence=5, attempt=2, used=1, process=B)
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at - 0.2),))


# --- I6 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ProgressAnswered, Extended, ExtendAnswered])
@pytest.mark.parametrize(("verdict", "broken"), [("done", ["I6"]), ("lost", []), ("unknown", [])])
def test_nothing_is_accepted_under_a_stale_fence(kind, verdict, broken):
    story = taken_over(6).fault(3, 7, "stop", A)
    more: dict[str, Any] = {} if kind is ProgressAnswered else {"lease_us": 2 * SECOND}
    story.add(7.2, kind, job="j1", fence=3, verdict=verdict, sent_us=story.us(7.1), **more)

    assert story.checked().broken == broken


def test_what_was_sent_before_the_next_claim_may_be_accepted():
    story = taken_over(6).fault(3, 7, "stop", A)
    story.add(7.2, ProgressAnswered, job="j1", fence=3, verdict="done", sent_us=story.us(5.9))

    assert story.checked().is_clean


def test_an_attempt_does_not_end_under_a_stale_fence():
    story = taken_over(6).fault(3, 7, "stop", A).finished(7.2, "j1", "retried", fence=3)

    assert story.checked().broken == ["I6"]


def test_a_finish_that_is_repeated_after_a_lost_answer_may_be_accepted_again():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).began(2.1, "j1", fence=3)
    story.ended(2.2, "j1", ObservedOutcome.RETRIED, fence=3).finished(2.5, "j1", "retried", fence=3, verdict="unknown")
    story.claimed(3, "j1", fence=5, attempt=2, process=B).began(3.1, "j1", fence=5, attempt=2, process=B)
    story.finished(4, "j1", "retried", fence=3)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "retried", at=2.4),))

    assert story.checked().is_clean


def test_a_stale_release_is_seen():
    story = taken_over(6).fault(3, 7, "stop", A)
    story.add(7.2, Released, job="j1", fence=3, started=True, verdict="done", sent_us=story.us(7.1))

    assert story.checked().broken == ["I6"]


def test_a_fence_that_is_given_out_twice_for_one_job_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).killed(3)
    story.began(5, "j1", fence=3, attempt=2, used=1, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=4.5),))

    assert "I6" in story.checked().broken


def test_a_fence_that_is_given_to_two_workers_is_seen():
    story = done_well(Story(), "j1")
    story.enqueued(1, "j2", call="c2", takes=Takes.NOTHING).began(3, "j2", fence=7, process=B).row("j2", "completed")

    assert story.checked().broken == ["I6"]


def test_jobs_of_one_claim_share_their_fence():
    story = done_well(Story(), "j1")
    story.enqueued(1, "j2", call="c2", takes=Takes.NOTHING).began(3, "j2", fence=7, process=A).row("j2", "completed")

    assert story.checked().is_clean


def test_an_effect_of_another_attempt_than_the_completing_one_is_seen():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).killed(3).began(6, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5),)).effect("j1", fence=3, attempt=1)

    assert story.checked().broken == ["I6"]


# --- I7 ---------------------------------------------------------------------------------------------------------------


def test_a_second_claim_inside_a_living_lease_is_seen():
    assert "I7" in taken_over(3.5).alive(4).fault(2.5, 4, "stop", A).checked().broken


def test_a_second_claim_after_the_lease_has_expired_breaks_nothing():
    assert taken_over(4.2).alive(5).fault(2.5, 4.5, "stop", A).checked().is_clean


def test_an_extension_moves_the_end_of_the_lease():
    story = taken_over(4.2).alive(5).fault(2.5, 4.5, "stop", A)
    story.add(3, Extended, job="j1", fence=3, verdict="done", sent_us=story.us(2.9), lease_us=2 * SECOND)

    assert story.checked().broken == ["I7"]


def test_the_lease_of_a_dead_worker_may_be_taken_at_once():
    assert taken_over(3.5).exited(3, A, signal=9).checked().is_clean


def test_a_lease_that_its_worker_gave_back_may_be_taken():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).alive(9)
    story.add(2.5, Released, job="j1", fence=3, started=False, verdict="done", sent_us=story.us(2.4))
    story.claimed(3, "j1", fence=5, attempt=2, process=B).began(3.1, "j1", fence=5, attempt=2, used=1, process=B)

    row = story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "released"),))
    assert row.checked().is_clean


def prefetched(at: float) -> Story:
    """Worker A claims a job and has not begun it when B claims it; A begins it all the same, much later."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).fault(1, 9, "stop", A)
    story.claimed(at, "j1", fence=5, attempt=2, process=B).began(5, "j1", fence=5, attempt=2, used=1, process=B)
    story.began(8, "j1", fence=3).row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at),))
    return story


@pytest.mark.parametrize(("at", "broken"), [(3.9, ["I7"]), (4.1, [])])
def test_what_was_claimed_and_has_not_begun_is_held_as_well(at, broken):
    assert prefetched(at).checked().broken == broken


@pytest.mark.parametrize("kind", [Finished, Released])
@pytest.mark.parametrize(
    ("verdict", "broken"), [("done", []), ("unknown", []), ("lost", ["I7"]), ("unavailable", ["I7"])]
)
def test_what_the_store_refused_gave_nothing_up(kind, verdict, broken):
    story = prefetched(3.5)
    more: dict[str, Any] = {"outcome": "retried"} if kind is Finished else {"started": False}
    story.add(3.2, kind, job="j1", fence=3, verdict=verdict, sent_us=story.us(3.1), **more)

    assert [code for code in story.checked().broken if code == "I7"] == broken


def test_a_call_to_cancel_gives_no_lease_up():
    assert prefetched(3.5).add(3, CancelCalled, job="j1").checked().broken == ["I7"]


@pytest.mark.parametrize(
    ("asked", "answered", "answer", "broken"),
    [
        (3, 3.1, True, []),
        (3, 3.1, None, []),  # whether it was done is unknown
        (3, None, True, []),  # whoever asked has died
        (3, 3.1, False, ["I7"]),  # it was not done
        (1.5, 1.6, True, ["I7"]),  # before the first claim: another lease was meant
        (3.6, 3.7, True, ["I7"]),  # after the second claim
    ],
)
def test_a_lease_that_a_person_took_away_may_be_taken(asked, answered, answer, broken):
    story = taken_over(3.5).alive(4).fault(2.5, 4, "stop", A).reset(asked, answered, answer=answer)

    assert [code for code in story.checked().broken if code == "I7"] == broken


# --- I23 --------------------------------------------------------------------------------------------------------------


def busy(story: Story, process: str = A) -> Story:
    """The process writes something four times a second until second 30, so it is given the processor."""
    for quarter in range(120):
        story.alive(quarter / 4, process)
    return story


def test_a_lease_that_is_taken_from_a_healthy_worker_is_seen():
    assert busy(taken_over(6)).checked().broken == ["I23"]


def test_whoever_pulls_a_job_and_does_not_extend_its_lease_loses_it():
    assert busy(taken_over(6, direct=True)).checked().is_clean


def test_a_pulled_job_is_not_taken_before_its_lease_is_over():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3, direct=True)
    story.claimed(5, "j1", fence=5, attempt=2, process=B).alive(3.5)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=3.8),))

    assert story.checked().broken == ["I23"]


# --- I6, of leases that a person took away -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "answer", "broken"),
    [
        (3.2, True, ["I6"]),
        (3.05, True, []),  # under way while it was taken away
        (3.2, None, []),
    ],
)
def test_whoever_held_what_a_person_took_away_writes_nothing_more(sent, answer, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).reset(3, 3.1, answer=answer)
    story.add(3.3, Extended, job="j1", fence=3, verdict="done", sent_us=story.us(sent), lease_us=2_000_000)
    story.row("j1", "completed", attempts=())

    assert [code for code in story.checked().broken if code == "I6"] == broken


def test_a_lease_of_what_was_claimed_and_has_not_begun_is_not_taken_either():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3)
    story.claimed(6, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5.8),))

    assert busy(story).checked().broken == ["I23"]


def test_a_lease_may_be_taken_from_a_worker_that_was_not_given_the_processor():
    """It writes nothing from second 4.5 to 9, and the lease is taken at 5.8."""
    verdict = taken_over(6).alive(2.5).alive(3).alive(3.5).alive(4).alive(4.5).alive(9).checked()

    assert verdict.is_clean, verdict.text()
    assert verdict.figures["leases taken from live workers: its worker was inactive"] == 1


@pytest.mark.parametrize(("took", "broken"), [(0.45, ["I23"]), (0.55, [])])
def test_a_call_excuses_a_lost_lease_only_if_it_took_a_fourth_of_it(took, broken):
    story = busy(taken_over(6))
    story.add(4 + took, Extended, job="j9", fence=1, verdict="done", sent_us=story.us(4), lease_us=2 * SECOND)

    assert story.called(1, "j9", call="c9").row("j9", "cancelled", attempt=0).checked().broken == broken


def test_a_child_that_died_was_not_robbed():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3)
    story.finished(4, "j1", "lost", fence=3).claimed(6, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=3.995),))

    assert busy(story).checked().is_clean


def test_with_a_store_whose_clock_was_stepped_thefts_are_not_judged_and_that_is_said():
    story = busy(taken_over(6))
    story.add(7, Clock, process="conductor-main-1", sent_us=story.us(7), store_us=story.store_us(70))

    verdict = story.checked()

    assert verdict.is_clean
    (tally,) = (tally for tally in verdict.tallies if tally.invariant == "I23")
    assert (tally.checked, tally.mark, tally.unjudged) == (0, "not judged", "the store's clock was stepped")
    assert "not judged: the store's clock was stepped" in verdict.text()


def test_a_lease_may_be_taken_from_a_worker_that_stood_still():
    assert taken_over(6).alive(9).fault(3, 8, "stop", A).checked().is_clean


def test_a_lease_may_be_taken_after_an_outage_of_the_store():
    assert taken_over(6).alive(9).fault(3, 5, "restart", "store", stalls=True).checked().is_clean


@pytest.mark.parametrize(("asked", "broken"), [(1.9, []), (13.9, ["I23"])])
def test_a_lease_may_be_taken_from_a_worker_whose_claim_was_answered_when_it_was_over(asked, broken):
    """The answer came at second 14, the lease was taken at 5.8 or 15.8."""
    at = 6 if asked < 6 else 16
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING)
    story.claimed(at, "j1", fence=5, attempt=2, process=B).began(at + 0.1, "j1", fence=5, attempt=2, used=1, process=B)
    story.claimed(14, "j1", fence=3, sent=asked).began(14.1 if at > 14 else 20, "j1", fence=3)
    busy(story)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at - 0.2),))

    assert story.checked().broken == broken


@pytest.mark.parametrize(("over", "broken"), [(5.5, ["I23"]), (5.0, [])])
def test_after_an_outage_for_all_the_living_may_extend_first(over, broken):
    """The lease is taken at second 5.8."""
    assert taken_over(6).alive(9).fault(3, over, "outage", "store", total=True).checked().broken == broken


@pytest.mark.parametrize("fault", ["restart", "server_stop"])
@pytest.mark.parametrize(("down", "up", "broken"), [(3, 5.5, ["I23"]), (3, 5.0, []), (5.7, 7, [])])
def test_a_server_that_is_down_is_an_outage_for_all(down, up, broken, fault):
    """The lease is taken at second 5.8: too soon, late enough, and just before the server was down."""
    assert taken_over(6).alive(9).fault(down, up, fault, "store", stalls=True).checked().broken == broken
