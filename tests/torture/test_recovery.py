from __future__ import annotations

import pytest
from tests.torture.stories import SECOND, A, B, Story

from holdfast.torture.events import Believed, Takes


def recovered(at: float) -> Story:
    """Worker A is killed at second 3, and its job is claimed by B at some second."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).killed(3)
    story.began(at, "j1", fence=5, attempt=2, used=1, process=B)
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at - 0.1),))


@pytest.mark.parametrize(("at", "broken"), [(6.9, []), (7.2, ["I9"])])
def test_a_killed_workers_job_comes_back_within_the_bound(at, broken):
    verdict = recovered(at).checked()

    assert verdict.broken == broken
    assert verdict.figures["longest recovery (s)"] == pytest.approx(at - 3.1)


def test_the_bound_of_recovery_counts_from_the_end_of_an_outage():
    assert recovered(10).fault(4, 6.5, "restart", "store", stalls=True).checked().is_clean


def left_behind(at: float, **exit_: int) -> Story:
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.fault(2.5, 3, "term", A, asks=True).exited(3, A, **exit_)
    story.began(6, "j1", fence=5, attempt=2, used=1, process=B)
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=at),))


def test_a_worker_that_ends_in_good_order_leaves_no_lease_behind():
    assert left_behind(5.5, code=0).checked().broken == ["I9"]


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


@pytest.mark.parametrize("how", [Believed.RETRIED, Believed.SNOOZED])
@pytest.mark.parametrize(("at", "broken"), [(7.9, ["I13"]), (8.0, [])])
def test_no_attempt_begins_before_the_delay_that_the_last_one_asked_for(how, at, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).ended(3, "j1", how, fence=3, delay=5)
    story.began(at, "j1", fence=5, attempt=2, used=2 if how == "retried" else 1)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, str(how), at=3.1),))

    assert story.checked().broken == broken


def test_a_job_that_was_lost_before_its_retry_was_written_may_run_at_once():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.ended(3, "j1", Believed.RETRIED, fence=3, delay=9).killed(3.1).began(6, "j1", fence=5, attempt=2, used=1)
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
