"""What a verdict says: how much was judged, what was not, and the history of a job that is wrong."""

from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story, done_well

from holdfast.torture.checker import timeline_of
from holdfast.torture.events import Clock, EnqueueAnswered, Takes
from holdfast.torture.history import Writer
from holdfast.torture.report import unjudged


def judged(story: Story) -> dict[str, int]:
    return {tally.invariant: tally.checked for tally in story.checked().tallies}


def test_only_what_an_invariant_applies_to_counts_as_judged():
    counts = judged(done_well().called(1, "j2", call="c2"))

    assert {code for code, count in counts.items() if count} == {
        "I1", "I2", "I3", "I5", "I6", "I7", "I8", "I13", "I19", "I21",
    }  # fmt: skip
    assert counts["I1"] == 1, "nobody knows whether the second one is in"


def test_an_invariant_that_judged_nothing_does_not_hold():
    verdict = done_well().checked()

    (failures,) = (tally for tally in verdict.tallies if tally.invariant == "I4")
    assert failures.mark == "not judged"
    assert "I4 (clean failure) was not judged: there was no case of it." in unjudged(verdict)


def test_what_was_judged_only_in_part_is_said_with_its_reason():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).claimed(2, "j1", fence=3).killed(3)
    story.claimed(4, "j1", fence=5, attempt=2, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=3.5),))
    story.add(7, Clock, process="conductor-main-1", sent_us=story.us(7), store_us=story.store_us(70))

    said = unjudged(story.checked())

    assert "I23 (no lease stolen) was not judged: the store's clock was stepped." in said
    assert any(line.startswith("I9 (bounded recovery) was not judged wholly: ") for line in said)


def test_a_fence_that_one_worker_is_given_in_two_claims_is_seen_with_the_second_job():
    story = done_well(Story(), "j1")
    story.enqueued(1, "j2", call="c2", takes=Takes.NOTHING).claimed(3, "j2", fence=7, process=A).row("j2", "completed")

    verdict = story.checked()

    assert verdict.broken == ["I6"]
    assert verdict.timeline


def test_a_job_that_was_overtaken_is_shown_with_its_history():
    story = Story(overtaking=3)
    for number, (at, claimed) in enumerate([(1, 20), (2, 10)]):
        job = f"j{number}"
        story.enqueued(at, job, call=f"c{number}", takes=Takes.NOTHING).row(job, "completed")
        story.claimed(claimed, job, fence=10 + number)

    verdict = story.checked()

    assert verdict.broken == ["I22"]
    assert verdict.timeline.startswith("the history of job j0")
    assert verdict.timeline.splitlines()[-1].count(">> I22: job j0")


def test_the_history_of_a_job_that_others_found_wrong_is_read_from_the_files(tmp_path):
    with Writer(tmp_path, run="r", role="worker", name="a") as writer:
        for _, event in done_well(done_well(Story(), "j1"), "j2").records:
            writer.write(event)

    lines = timeline_of(tmp_path, "j2", "its step is there twice").splitlines()

    assert lines[0].startswith("the history of job j2")
    assert [line.split()[2] for line in lines[1:-1]] == [
        "enqueue_called", "enqueue_answered", "claimed", "attempt_began", "effect_began", "effect_committed",
        "attempt_ended", "dumped_job", "effect_row",
    ]  # fmt: skip
    assert lines[-1].endswith(">> steps: job j2: its step is there twice")


@pytest.mark.parametrize(("code", "broken"), [(0, []), (69, []), (3, []), (1, ["I21"]), (70, ["I21"])])
def test_a_process_that_ends_of_an_unexpected_error_is_seen(code, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.finished(2.5, "j1", "completed", fence=3).exited(3, A, code=code).row("j1", "completed")

    assert story.checked().broken == broken


@pytest.mark.parametrize(("number", "broken"), [(9, []), (15, []), (6, ["I21"]), (11, ["I21"])])
def test_a_process_that_crashes_is_seen_and_one_that_is_killed_is_not_blamed(number, broken):
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.finished(2.5, "j1", "completed", fence=3).exited(3, A, signal=number).row("j1", "completed")

    assert story.checked().broken == broken


def test_the_earliest_violation_is_shown_whether_a_job_or_the_whole_has_it():
    story = Story(overtaking=1)
    for number in (1, 2):
        story.enqueued(number, f"j{number}", call=f"c{number}", takes=Takes.NOTHING)
    story.claimed(4, "j2", fence=3, process=B).claimed(5, "j1", fence=5)  # j1 was overtaken
    story.row("j1", "completed").row("j2", "completed").called(1, "j3", call="c3").claimed(80, "j3", fence=9)

    verdict = story.checked()

    assert verdict.broken == ["I1", "I22"]
    assert verdict.timeline.startswith("the history of job j1")


def test_the_call_that_asked_for_a_job_is_shown_though_the_library_made_the_id():
    story = Story().called(1, call="c1", size=1, takes=Takes.NOTHING)
    story.add(1.1, EnqueueAnswered, process="producer-a-5", call="c1", jobs=("j1",))
    story.row("j1", "ready", call="c1", attempt=0)

    verdict = story.checked()

    assert verdict.broken == ["I1"]
    assert [line.split()[1:4] for line in verdict.timeline.splitlines()[1:2]] == [["a", "producer", "enqueue_called"]]
