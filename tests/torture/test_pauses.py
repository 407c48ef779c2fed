from __future__ import annotations

import pytest
from tests.torture.stories import B, Story

from holdfast.torture.events import PauseAnswered, ResumeAnswered, ResumeCalled, Takes

PRODUCER, OTHER = "producer-a-5", "producer-b-6"


def story_of_a_claim(sent: float, answered: float) -> Story:
    """A job is claimed by B, after whatever is added to the story."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING)
    story.claimed(answered, "j1", fence=3, sent=sent, process=B).finished(answered, "j1", "completed", fence=3)
    return story.row("j1", "completed", queue="default").alive(30)


def paused(story: Story, sent: float, answered: float, *, process: str = PRODUCER, queue: str = "default") -> Story:
    return story.add(answered, PauseAnswered, process=process, queue=queue, sent_us=story.us(sent))


def resumed(story: Story, sent: float, answered: float | None, *, process: str = PRODUCER) -> Story:
    story.add(sent, ResumeCalled, process=process, queue="default")
    if answered is not None:
        story.add(answered, ResumeAnswered, process=process, queue="default", sent_us=story.us(sent))
    return story


@pytest.mark.parametrize(
    ("sent", "answered", "broken"),
    [
        (3.0, 3.1, ["I24"]),
        (1.5, 1.6, []),  # before it
        (1.9, 3.0, []),  # sent before the pause was answered: it may have come first
        (3.9, 4.1, []),  # answered after somebody had asked to resume
        (4.5, 4.6, []),  # after it
    ],
)
def test_nothing_is_claimed_from_a_paused_queue(sent, answered, broken):
    story = resumed(paused(story_of_a_claim(sent, answered), 1.8, 2.0), 4.0, 4.2)

    assert story.checked().broken == broken


def test_a_pause_of_another_queue_forbids_nothing():
    assert paused(story_of_a_claim(3.0, 3.1), 1.8, 2.0, queue="other").checked().is_clean


def test_a_queue_that_nobody_resumes_stays_paused():
    assert paused(story_of_a_claim(9.0, 9.1), 1.8, 2.0).checked().broken == ["I24"]


@pytest.mark.parametrize(
    ("resume", "broken"),
    [
        ((1.0, 1.5), ["I24"]),  # surely before the pause
        ((1.0, 1.9), []),  # while the pause was on its way: either may have come first
        ((1.0, None), []),  # never answered: it may be done much later
    ],
)
def test_a_resume_counts_if_it_may_have_come_after_the_pause(resume, broken):
    story = resumed(paused(story_of_a_claim(3.0, 3.1), 1.8, 2.0), *resume, process=OTHER)

    assert story.checked().broken == broken


def test_a_second_pause_holds_when_the_first_is_over():
    story = resumed(paused(story_of_a_claim(5.0, 5.1), 1.8, 2.0), 4.0, 4.2)
    paused(story, 4.3, 4.4, process=OTHER)

    assert story.checked().broken == ["I24"]


def test_overlapping_pauses_end_with_the_first_resume():
    story = resumed(paused(story_of_a_claim(5.0, 5.1), 1.8, 2.0), 4.0, 4.2)
    paused(story, 2.5, 2.6, process=OTHER)

    assert story.checked().is_clean


def test_a_resume_that_was_never_answered_does_not_excuse_claims_for_ever():
    story = resumed(paused(story_of_a_claim(9.0, 9.1), 7.0, 7.1), 1.0, None, process=OTHER)

    assert story.checked().broken == ["I24"]


def test_pauses_that_were_surely_in_force_are_counted_and_the_others_told():
    story = resumed(paused(story_of_a_claim(4.5, 4.6), 1.8, 2.0), 4.0, 4.2)
    paused(story, 2.5, 2.6, process=OTHER)

    (tally,) = (tally for tally in story.checked().tallies if tally.invariant == "I24")

    assert tally.checked == 1
    assert tally.unjudged.startswith("1 of 2 pauses")
