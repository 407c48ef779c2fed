from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story, done_well

from holdfast.torture.events import (
    CancelAnswered,
    CancelCalled,
    EffectRolledBack,
    EnqueueUnknown,
    ObservedOutcome,
    RetryCalled,
    Takes,
)


def test_a_job_that_is_done_well_breaks_nothing():
    verdict = done_well().checked()

    assert verdict.is_clean, verdict.text()
    assert verdict.jobs == 1


def test_an_acknowledged_job_that_the_store_does_not_know_is_lost():
    verdict = Story().enqueued(1, "j1").checked()

    assert verdict.broken == ["I1"]


def test_a_job_whose_enqueue_is_unknown_may_be_missing():
    story = Story().called(1, "j1").add(2, EnqueueUnknown, call="c1", jobs=("j1",), error="cut")

    assert story.checked().is_clean


def test_a_job_whose_enqueue_is_unknown_is_lost_if_it_was_claimed_and_is_gone():
    story = Story().called(1, "j1").add(2, EnqueueUnknown, call="c1", jobs=("j1",), error="cut")

    assert story.claimed(3, "j1", fence=3).checked().broken == ["I1"]


def test_a_job_whose_enqueue_is_unknown_must_end_if_it_is_there():
    assert Story().called(1, "j1").row("j1", "ready", attempt=0).checked().broken == ["I1"]


def test_a_job_that_is_not_ended_after_the_drain_is_lost():
    assert Story().enqueued(1, "j1").row("j1", "scheduled", attempt=0).checked().broken == ["I1"]


def test_a_completed_job_without_its_effect_is_lost():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).row("j1", "completed")

    assert story.checked().broken == ["I1"]


def test_a_completed_job_that_takes_no_effect_needs_none():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).row("j1", "completed")

    assert story.checked().is_clean


def test_a_completed_job_without_a_row_in_the_ledger_is_lost():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).row("j1", "completed", completions=0)

    assert story.effect("j1", fence=3).checked().broken == ["I1"]


def test_a_confirmed_effect_that_is_not_there_is_lost():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).committed(2.5, "j1", fence=3)
    story.row("j1", "failed", attempts=(story.kept(1, "lost"),))

    assert "I1" in story.checked().broken


def test_an_outside_effect_that_was_never_sent_is_lost():
    story = Story().enqueued(1, "j1", takes=Takes.OUTSIDE).began(2, "j1", fence=3).row("j1", "completed")

    assert story.checked().broken == ["I1"]


def test_a_failed_job_with_an_effect_is_no_clean_failure():
    story = Story().enqueued(1, "j1", max_attempts=1).began(2, "j1", fence=3)
    story.row("j1", "failed", max_attempts=1, attempts=(story.kept(1, "failed"),)).effect("j1", fence=3)

    assert story.checked().broken == ["I4"]


def test_a_failed_job_may_have_sent_effects_outside():
    story = Story().enqueued(1, "j1", max_attempts=1, takes=Takes.OUTSIDE).began(2, "j1", fence=3)
    story.row("j1", "failed", max_attempts=1, attempts=(story.kept(1, "failed"),)).effect("j1", fence=3)

    assert story.checked().is_clean


def test_a_job_that_takes_no_effect_has_none():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3).row("j1", "completed")

    assert story.effect("j1", fence=3).checked().broken == ["I4"]


def test_an_effect_that_was_rolled_back_is_not_there():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3)
    story.add(2.5, EffectRolledBack, job="j1", fence=3, error="Unlucky").began(3, "j1", fence=5, attempt=2, used=2)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "retry"),)).effect("j1", fence=3)

    assert "I4" in story.checked().broken


@pytest.mark.parametrize("error", ["CancelledError", "SystemExit"])
def test_an_effect_whose_commit_nobody_waited_for_may_be_there(error):
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3)
    story.add(2.5, EffectRolledBack, job="j1", fence=3, error=error).row("j1", "completed").effect("j1", fence=3)

    assert story.checked().is_clean


def test_an_attempt_whose_first_transaction_was_rolled_back_may_take_effect_in_a_second_one():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3)
    story.add(2.5, EffectRolledBack, job="j1", fence=3, error="StoreUnavailable").committed(3, "j1", fence=3)

    assert story.row("j1", "completed").effect("j1", fence=3).checked().is_clean


def test_a_completed_job_is_never_claimed_again():
    story = done_well().claimed(5, "j1", fence=9, attempt=2, process=B)

    assert story.checked().broken == ["I5", "I8"]


def test_a_job_that_ended_as_failed_is_not_claimed_again():
    story = Story().enqueued(1, "j1", max_attempts=1).began(2, "j1", fence=3)
    story.finished(3, "j1", "failed", fence=3).claimed(4, "j1", fence=5, attempt=2)
    story.row("j1", "failed", max_attempts=1, attempt=1, attempts=(story.kept(1, "failed"),))

    assert story.checked().broken == ["I5", "I8"]


def test_a_failed_job_that_a_person_sends_back_may_run_again():
    story = Story().enqueued(1, "j1", max_attempts=1).began(2, "j1", fence=3)
    story.finished(3, "j1", "failed", fence=3).add(4, RetryCalled, job="j1")
    story.began(5, "j1", fence=6, attempt=2, used=1).committed(6, "j1", fence=6).effect("j1", fence=6, attempt=2)
    story.row("j1", "completed", attempt=2, max_attempts=1, attempts=(story.kept(1, "failed"),))

    assert story.checked().is_clean


@pytest.mark.parametrize("asked", [None, 3.5])
def test_a_cancelled_job_is_not_claimed(asked):
    story = Story().enqueued(1, "j1").add(2, CancelCalled, job="j1")
    story.add(3, CancelAnswered, job="j1", answer="cancelled", sent_us=story.us(2))
    if asked is None:
        story.began(4, "j1", fence=3)
    else:
        story.claimed(4, "j1", fence=3, sent=asked)

    assert story.row("j1", "cancelled", attempts=(story.kept(1, "released"),)).checked().broken == ["I8"]


def test_a_claim_that_was_told_of_late_may_have_been_over_before_the_job_was_cancelled():
    story = Story().enqueued(1, "j1").add(5, CancelCalled, job="j1").fault(1.5, 7, "stop", A)
    story.add(6, CancelAnswered, job="j1", answer="cancelled", sent_us=story.us(5)).claimed(7, "j1", fence=3, sent=1.4)

    assert story.row("j1", "cancelled", attempts=(story.kept(1, "lost", at=4),)).checked().is_clean


@pytest.mark.parametrize(("answer", "broken"), [("cancelled", ["I8"]), ("asked", [])])
def test_a_job_that_runs_is_asked_to_cancel_and_not_called_cancelled(answer, broken):
    story = Story().enqueued(1, "j1").began(1.5, "j1", fence=3).add(2, CancelCalled, job="j1")
    story.add(3, CancelAnswered, job="j1", answer=answer, sent_us=story.us(2))
    story.ended(4, "j1", ObservedOutcome.CANCELLED, fence=3).row(
        "j1", "cancelled", attempts=(story.kept(1, "cancelled"),)
    )

    assert story.checked().broken == broken


def test_a_job_that_was_asked_to_cancel_may_complete_first():
    story = Story().enqueued(1, "j1").add(2, CancelCalled, job="j1").began(2.5, "j1", fence=3)
    story.add(3, CancelAnswered, job="j1", answer="asked", sent_us=story.us(2)).committed(4, "j1", fence=3)
    story.ended(4.1, "j1", ObservedOutcome.COMPLETED, fence=3).row("j1", "completed").effect("j1", fence=3)

    assert story.checked().is_clean


def test_a_job_that_stands_in_two_states_is_seen():
    assert "I8" in done_well().row("j1", "ready").checked().broken


def test_the_timeline_of_the_first_offending_job_is_whole_and_in_order():
    story = done_well(Story(), "fine")
    story.enqueued(1, "late").began(8, "late", fence=30).row("late", "running")
    story.enqueued(1, "early", call="c2").began(3, "early", fence=20).committed(4, "early", fence=20, process=A)
    story.claimed(5, "early", fence=25, attempt=2, process=B).row("early", "completed").effect("early", fence=20)

    verdict = story.checked()

    lines = verdict.timeline.splitlines()
    assert lines[0].startswith("the history of job early")
    words = [line.split()[2] for line in lines[1:] if ">>" not in line]
    assert words == [
        "enqueue_called", "enqueue_answered", "attempt_began", "effect_began", "effect_committed", "claimed",
        "dumped_job", "effect_row",
    ]  # fmt: skip
    assert [line.split()[2] for line in lines if ">>" in line] == ["I8:", "I5:"]
    assert verdict.text().count("VIOLATED") == len(verdict.broken)
