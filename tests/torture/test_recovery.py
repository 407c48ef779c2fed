from __future__ import annotations

import pytest
from tests.torture.stories import SECOND, A, B, Story

from holdfast.torture.checker.outages import Outages
from holdfast.torture.events import FaultBegan, Finished, ObservedOutcome, Takes


def recovered(at: float) -> Story:
    """Worker A is killed at second 3, and its job is claimed by B at some second."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).killed(3)
    story.began(at, "j1", fence=5, attempt=2, used=1, process=B)
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at - 0.1),))


@pytest.mark.parametrize(("at", "broken"), [(6.9, []), (7.2, ["I9"])])
def test_a_killed_workers_job_comes_back_within_the_bound(at, broken):
    verdict = recovered(at).checked()

    assert verdict.broken == broken
    assert verdict.figures["longest until free (s)"] == pytest.approx(at - 3.1)
    assert verdict.figures["longest until claimed again (s)"] == pytest.approx(at - 3)


@pytest.mark.parametrize(
    ("at", "other", "turn", "broken"),
    [
        (7.9, 7.5, 9, []),
        (8.1, 7.5, 9, ["I9"]),
        (8.1, 7.5, 0, []),  # one of an earlier turn was still to be claimed
        (8.1, 6.5, 0, ["I9"]),
    ],
)
def test_what_a_killed_worker_had_not_begun_is_claimed_again_once_its_turn_has_come(at, other, turn, broken):
    """It is free in time: the bound of four seconds is over at seven, and a job may be overtaken for one more."""
    story = Story(overtaking=1).enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3, turn=1).killed(3)
    story.enqueued(1, "j2", call="c2", takes=Takes.NOTHING, task="other")
    story.claimed(other, "j2", fence=4, turn=turn, process=B).row("j2", "completed")
    story.claimed(at, "j1", fence=5, attempt=2, process=B, turn=1)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=6),))

    assert story.checked().broken == broken


def test_what_a_killed_worker_had_not_begun_is_free_within_the_bound():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).killed(3)
    story.row("j1", "cancelled", attempts=(story.kept(1, "lost", at=7.2),))

    assert story.checked().broken == ["I9"]


def test_the_bound_of_recovery_counts_from_the_end_of_an_outage():
    assert recovered(10).fault(4, 6.5, "restart", "store", stalls=True).checked().is_clean


@pytest.mark.parametrize(("other_writes_at", "broken"), [(None, []), (4.5, ["I9"]), (3.1, []), (6.5, [])])
def test_a_stop_is_an_outage_only_if_nobody_else_could_write_meanwhile(other_writes_at, broken):
    story = recovered(9).fault(3, 6.45, "stop", "worker-c-13", stalls=True)
    if other_writes_at is not None:
        story.enqueued(1, "j2", call="c2", takes=Takes.NOTHING).began(2, "j2", fence=4, process=B)
        story.finished(other_writes_at, "j2", "completed", fence=4, process=B).row("j2", "completed")

    assert story.checked().broken == broken


def test_a_bound_stands_still_in_outages_and_does_not_begin_anew_with_each():
    outages = Outages()
    for begin in (5, 15, 25):
        outages.suspect(
            FaultBegan(at_us=begin * SECOND, number=begin, fault="restart", target="store", stalls=True),
            (begin + 1) * SECOND,
        )
    outages.close()

    assert outages.over(0, 20 * SECOND, lease_us=2 * SECOND) == (20 + 3 * (1 + 2)) * SECOND
    assert outages.over(26 * SECOND, 20 * SECOND, lease_us=2 * SECOND) == 46 * SECOND


def left_behind(at: float, *, direct: bool = False, **exit_: int) -> Story:
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING)
    story.claimed(1.9, "j1", fence=3, direct=direct).began(2, "j1", fence=3)
    story.fault(2.5, 3, "term", A, asks=True).exited(3, A, **exit_)
    story.began(6, "j1", fence=5, attempt=2, used=1, process=B)
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at),))


def test_a_worker_that_is_stopped_past_its_lease_while_it_ends_may_lose_what_it_holds():
    assert left_behind(5, code=0).checked().broken == ["I9"]
    assert left_behind(5, code=0).fault(2.7, 2.9, "stop", A).checked().is_clean


def test_what_somebody_pulled_and_kept_to_the_end_may_expire():
    assert left_behind(5, direct=True, code=0).checked().is_clean


def test_a_worker_that_ends_in_good_order_leaves_no_lease_behind():
    assert left_behind(5.5, code=0).checked().broken == ["I9"]


def test_a_worker_gives_nothing_back_of_which_it_was_never_told():
    """The answer to its claim was lost, and with it the only word of the job."""
    story = Story().enqueued(1, "j1", "j2", takes=Takes.NOTHING).claimed(2, "j2", fence=3).row("j2", "completed")
    story.fault(2.5, 3, "term", A, asks=True).exited(3, A, code=0).claimed(6, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5.5),))

    assert story.checked().is_clean


def test_a_job_whose_child_died_was_not_left_behind_by_the_worker_that_said_so():
    story = left_behind(2.9, code=0).finished(2.9, "j1", fence=3, outcome="lost")

    assert "I9" not in story.checked().broken


def test_a_worker_that_is_killed_while_it_ends_may_leave_leases():
    assert left_behind(5.5, signal=9).checked().is_clean


@pytest.mark.parametrize(("at", "broken"), [(2.4, []), (2.9, ["I9"])])
def test_from_when_it_is_asked_to_end_a_worker_lets_no_lease_expire(at, broken):
    assert left_behind(at, code=0).checked().broken == broken


# --- I13 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "broken"), [(5.9, ["I13"]), (6.0, [])])
def test_nothing_begins_before_its_delay_is_over(at, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, delay_us=5 * SECOND).began(at, "j1", fence=3)

    assert story.row("j1", "completed").checked().broken == broken


@pytest.mark.parametrize(("at", "broken"), [(5.9, ["I13"]), (6.0, [])])
def test_nothing_begins_before_the_instant_it_was_asked_for(at, broken):
    story = Story()
    story.enqueued(1, "j1", takes=Takes.NOTHING, run_us=story.store_us(6)).began(at, "j1", fence=3)

    assert story.row("j1", "completed").checked().broken == broken


@pytest.mark.parametrize("how", [ObservedOutcome.RETRIED, ObservedOutcome.SNOOZED])
@pytest.mark.parametrize(("at", "broken"), [(7.9, ["I13"]), (8.0, [])])
def test_no_attempt_begins_before_the_delay_that_the_last_one_asked_for(how, at, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).ended(3, "j1", how, fence=3, delay=5)
    story.began(at, "j1", fence=5, attempt=2, used=2 if how == "retried" else 1)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, str(how), at=3.1),))

    assert story.checked().broken == broken


@pytest.mark.parametrize(("at", "broken"), [(5.9, ["I13"]), (6.0, [])])
def test_a_job_that_tells_nothing_is_not_claimed_before_its_delay_is_over(at, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, delay_us=5 * SECOND).claimed(at, "j1", fence=3)

    assert story.row("j1", "completed").checked().broken == broken


@pytest.mark.parametrize("how", ["retried", "snoozed"])
@pytest.mark.parametrize("verdict", ["done", "unknown"])
@pytest.mark.parametrize(("at", "broken"), [(7.9, ["I13"]), (8.1, [])])
def test_no_attempt_is_claimed_before_the_delay_that_a_policy_has_set(how, verdict, at, broken):
    """The handler asked for none: only what was sent to the store shows it."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3)
    story.add(3.1, Finished, job="j1", fence=3, outcome=how, verdict=verdict, sent_us=story.us(3), delay_us=5 * SECOND)
    story.claimed(at, "j1", fence=5, attempt=2)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, how, at=3.05),))

    assert story.checked().broken == broken


@pytest.mark.parametrize(("at", "broken"), [(7.9, ["I13"]), (8.0, [])])
def test_in_a_batch_the_delay_counts_from_when_the_outcome_was_sent_although_the_handler_ends_later(at, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.add(
        4, Finished, job="j1", fence=3, outcome="retried", verdict="done", sent_us=story.us(3), delay_us=5 * SECOND
    )
    story.ended(4.1, "j1", ObservedOutcome.RETRIED, fence=3, delay=5)
    story.began(at, "j1", fence=5, attempt=2, used=2)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "retried", at=3.1),))

    assert story.checked().broken == broken


@pytest.mark.parametrize("verdict", ["lost", "unavailable"])
def test_a_retry_that_the_store_has_refused_delays_nothing(verdict):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).fault(2.5, 6, "stop", A)
    sent_us = story.us(6)
    story.add(
        6.1, Finished, job="j1", fence=3, outcome="retried", verdict=verdict, sent_us=sent_us, delay_us=9 * SECOND
    )
    story.claimed(6.5, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5),))

    assert story.checked().is_clean


def test_a_job_that_was_lost_before_its_retry_was_written_may_run_at_once():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.ended(3, "j1", ObservedOutcome.RETRIED, fence=3, delay=9).killed(3.1).began(
        6, "j1", fence=5, attempt=2, used=1
    )
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5),))

    assert story.checked().is_clean


# --- I22 --------------------------------------------------------------------------------------------------------------


def overtaken(first: float, second: float, **options: int) -> Story:
    """Two jobs of one queue, the first enqueued a second earlier; each is claimed at some second."""
    story = Story(overtaking=3)
    for number, (at, claimed) in enumerate([(1, first), (2, second)]):
        job, more = f"j{number}", options if number else {}
        story.enqueued(at, job, call=f"c{number}", takes=Takes.NOTHING, **more)
        story.claimed(claimed, job, fence=10 + number).began(claimed, job, fence=10 + number).row(job, "completed")
    return story


@pytest.mark.parametrize(
    ("first", "second", "broken"),
    [
        (20, 10, ["I22"]),
        (20, 4.5, ["I22"]),
        (20, 3.5, []),  # the first had not been ready for as long as the bound
        (10, 20, []),
    ],
)
def test_a_job_is_not_overtaken_by_one_whose_turn_is_later(first, second, broken):
    assert overtaken(first, second).checked().broken == broken


@pytest.mark.parametrize(("first", "second", "broken"), [(20, 10, []), (10, 20, ["I22"])])
def test_a_priority_is_a_head_start(first, second, broken):
    assert overtaken(first, second, priority=1).checked().broken == broken
