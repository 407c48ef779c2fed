from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story

from holdfast.torture.events import Believed, ResetCalled, Takes


def two_attempts(how: str, used: int, *, isolated: tuple[bool, bool] = (False, False)) -> Story:
    """A job whose first attempt ended in some way, and whose second completed it."""
    story = Story(isolates=True).enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3, isolated=isolated[0])
    if how == "lost":
        story.killed(3)
    else:
        story.ended(3, "j1", Believed(how), fence=3)
    story.began(5, "j1", fence=5, attempt=2, used=used, process=B, isolated=isolated[1])
    return story.row("j1", "completed", attempt=2, attempts=(story.kept(1, how, at=3.5),))


@pytest.mark.parametrize(
    ("how", "used", "isolated"),
    [
        ("retried", 2, (False, False)),
        ("snoozed", 1, (False, False)),
        ("lost", 1, (False, True)),
        ("lost", 1, (True, True)),
        ("lost", 2, (True, True)),
    ],
)
def test_attempts_that_are_counted_as_the_rules_say_break_nothing(how, used, isolated):
    verdict = two_attempts(how, used, isolated=isolated).checked()

    assert verdict.is_clean, verdict.text()


@pytest.mark.parametrize(
    ("how", "used", "isolated"),
    [
        ("retried", 1, (False, False)),
        ("snoozed", 2, (False, False)),
        ("lost", 2, (False, True)),
        ("lost", 3, (True, True)),
    ],
)
def test_attempts_that_are_held_against_the_limit_wrongly_are_seen(how, used, isolated):
    assert two_attempts(how, used, isolated=isolated).checked().broken == ["I5"]


@pytest.mark.parametrize(
    ("verdict", "used", "broken"), [("done", 2, []), ("done", 1, ["I5"]), ("unknown", 1, []), ("unknown", 2, [])]
)
def test_what_dies_with_a_child_of_its_own_was_alone_though_nobody_had_isolated_it(verdict, used, broken):
    story = Story(isolates=True).enqueued(1, "j1", takes=Takes.NOTHING).claimed(1.9, "j1", fence=3)
    story.began(2, "j1", fence=3, process=B).finished(3, "j1", "lost", fence=3, verdict=verdict)
    story.claimed(4, "j1", fence=5, attempt=2).began(5, "j1", fence=5, attempt=2, used=used, process=B, isolated=True)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=3),))

    assert [code for code in story.checked().broken if code == "I5"] == broken


def test_a_lost_job_that_runs_beside_others_is_seen():
    assert two_attempts("lost", 1, isolated=(False, False)).checked().broken == ["I5"]


@pytest.mark.parametrize(("claimed_by", "broken"), [(B, ["I5"]), (A, [])])
def test_a_lost_job_does_not_run_in_the_process_that_has_claimed_it(claimed_by, broken):
    story = two_attempts("lost", 1, isolated=(False, True)).claimed(4.9, "j1", fence=5, attempt=2, process=claimed_by)

    assert [code for code in story.checked().broken if code == "I5"] == broken


def test_an_attempt_number_that_is_given_twice_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).killed(3)
    story.began(5, "j1", fence=5, attempt=1, process=B).row("j1", "completed", attempt=1)

    assert story.checked().broken == ["I5"]


def test_an_attempt_beyond_the_limit_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, max_attempts=3).began(2, "j1", fence=3, attempt=4, used=4)

    assert story.row("j1", "completed", attempt=4).checked().broken == ["I5"]


def test_a_job_that_is_given_up_early_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.row("j1", "failed", attempts=(story.kept(1, "failed"),))

    assert story.checked().broken == ["I5"]


def test_a_job_that_is_given_up_at_its_last_attempt_breaks_nothing():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, max_attempts=1).began(2, "j1", fence=3)
    story.row("j1", "failed", max_attempts=1, attempts=(story.kept(1, "failed"),))

    assert story.checked().is_clean


def test_a_job_that_is_to_run_again_after_its_last_attempt_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, max_attempts=1).began(2, "j1", fence=3)
    story.row("j1", "cancelled", max_attempts=1, attempts=(story.kept(1, "retried"),))

    assert story.checked().broken == ["I5"]


def test_an_attempt_that_leaves_no_record_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.began(5, "j1", fence=5, attempt=2, process=B).row("j1", "completed", attempt=2)

    assert story.checked().broken == ["I5"]


def test_an_attempt_that_a_person_took_away_need_not_leave_one():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).add(3, ResetCalled, job="j1")
    story.began(5, "j1", fence=5, attempt=2, used=1, process=B).row("j1", "completed", attempt=2)

    assert story.checked().is_clean


def test_an_attempt_that_the_store_does_not_count_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3, attempt=2, used=1)

    assert story.row("j1", "completed", attempt=1).checked().broken == ["I5"]


@pytest.mark.parametrize(("count", "broken"), [(16, []), (17, ["I5"])])
def test_excused_attempts_have_a_bound(count, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING)
    for number in range(1, count + 1):
        story.began(2 + number, "j1", fence=number, attempt=number, used=1, process=A)
    kept = tuple(story.kept(number, "released") for number in range(1, 11))
    story.row("j1", "completed", attempt=count, attempts=kept)

    assert story.checked().broken == broken
