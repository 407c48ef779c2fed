from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story

from holdfast.torture.events import ObservedOutcome, Takes


def two_attempts(how: str, used: int, *, isolated: tuple[bool, bool] = (False, False)) -> Story:
    """A job whose first attempt ended in some way, and whose second completed it."""
    story = Story(isolates=True).enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3, isolated=isolated[0])
    if how == "lost":
        story.killed(3)
    else:
        story.ended(3, "j1", ObservedOutcome(how), fence=3)
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


def test_a_lost_job_that_was_pulled_runs_where_its_caller_runs_it():
    story = two_attempts("lost", 1, isolated=(False, True)).claimed(
        4.9, "j1", fence=5, attempt=2, process=B, direct=True
    )

    assert "I5" not in story.checked().broken


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


@pytest.mark.parametrize(("kept", "broken"), [(True, []), (False, ["I5"])])
def test_an_attempt_that_a_person_took_away_leaves_a_record_too(kept, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).reset(3, 3.1)
    story.began(5, "j1", fence=5, attempt=2, used=1, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "released"),) if kept else ())

    assert story.checked().broken == broken


def silent(*numbers: int, state: str = "completed", attempt: int, outcome: str = "released") -> Story:
    """A job whose handler tells nothing of itself, with the numbers of the attempts that the store has kept."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=50, attempt=attempt)
    return story.row("j1", state, attempt=attempt, attempts=tuple(story.kept(number, outcome) for number in numbers))


FIRST, MANY = (1, 2, 3, 4, 5), tuple(range(1, 26))


@pytest.mark.parametrize(
    ("numbers", "state", "attempt"),
    [
        ((), "completed", 1),
        ((1, 2), "completed", 3),
        ((1, 2), "cancelled", 2),
        (MANY, "completed", 26),
        ((*FIRST, *range(7, 27)), "completed", 27),
        ((*FIRST, *range(21, 41)), "cancelled", 40),
    ],
)
def test_attempts_are_kept_without_gap_but_for_those_in_the_middle_of_very_many(numbers, state, attempt):
    verdict = silent(*numbers, state=state, attempt=attempt).checked()

    assert verdict.is_clean, verdict.text()


@pytest.mark.parametrize(
    ("numbers", "state", "attempt"),
    [
        ((), "completed", 2),  # the first has left nothing
        ((2,), "completed", 3),  # a gap at the begin
        ((1,), "completed", 3),  # a gap at the end
        ((1, 3), "completed", 4),  # a gap between
        ((1, 1), "completed", 2),  # one is there twice
        ((1, 2), "completed", 2),  # the one that completed has left a row as well
        ((1,), "cancelled", 2),  # the last one has left nothing
        ((1, 2, 3), "cancelled", 2),  # one that was never counted
        ((*FIRST, *range(8, 27)), "completed", 27),  # one of the last twenty is gone
        ((1, 2, 3, 4, *range(7, 27)), "completed", 27),  # one of the first five is gone
    ],
)
def test_a_gap_or_a_repetition_among_the_attempts_of_a_silent_job_is_seen(numbers, state, attempt):
    assert silent(*numbers, state=state, attempt=attempt).checked().broken == ["I5"]


def test_an_attempt_number_that_is_claimed_twice_is_seen_though_no_handler_told_of_it():
    story = silent(1, attempt=2).claimed(9, "j1", fence=60, attempt=2, process=B)

    assert "I5" in story.checked().broken


def test_a_handler_that_begins_under_another_number_than_was_claimed_is_seen():
    story = silent(1, attempt=2).began(2.1, "j1", fence=50, attempt=1)

    assert "I5" in story.checked().broken


@pytest.mark.parametrize(("retried", "broken"), [(2, []), (3, ["I5"])])
def test_a_silent_job_is_not_retried_beyond_its_limit_of_three(retried, broken):
    numbers = range(1, retried + 1)

    assert silent(*numbers, attempt=retried + 1, outcome="retried").checked().broken == broken


@pytest.mark.parametrize(("count", "broken"), [(16, []), (17, ["I5"])])
def test_a_silent_job_is_not_lost_for_ever(count, broken):
    assert silent(*range(1, count), attempt=count, outcome="lost").checked().broken == broken


@pytest.mark.parametrize(
    ("between", "used", "broken"),
    [("retried", 3, []), ("retried", 2, ["I5"]), ("snoozed", 2, []), ("snoozed", 3, ["I5"]), ("lost", 3, [])],
)
def test_what_is_counted_is_followed_over_attempts_of_which_no_handler_told(between, used, broken):
    story = Story(isolates=True).enqueued(1, "j1", takes=Takes.NOTHING)
    story.began(2, "j1", fence=3).ended(2.5, "j1", ObservedOutcome.RETRIED, fence=3)
    story.began(9, "j1", fence=9, attempt=3, used=used, process=B, isolated=between == "lost")
    kept = (story.kept(1, "retried", at=2.6), story.kept(2, between, at=5))

    assert story.row("j1", "completed", attempt=3, attempts=kept).checked().broken == broken


def test_an_attempt_that_the_store_does_not_count_is_seen():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3, attempt=2, used=1)

    assert story.row("j1", "completed", attempt=1).checked().broken == ["I5"]


@pytest.mark.parametrize(("count", "broken"), [(16, []), (17, ["I5"])])
def test_excused_attempts_have_a_bound(count, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING)
    for number in range(1, count + 1):
        story.began(2 + number, "j1", fence=number, attempt=number, used=1, process=A)
    kept = tuple(story.kept(number, "released") for number in range(1, count))
    story.row("j1", "completed", attempt=count, attempts=kept)

    assert story.checked().broken == broken
