from __future__ import annotations

import pytest
from tests.torture.stories import B, Story

from holdfast.torture.events import EnqueueAnswered, Takes


def two_of_a_key(first_ended: float | None, second: float, *, key: str = "k") -> Story:
    """Job j1 of a key is claimed at 2 and finished, or its end is not known; another of a key is enqueued."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, unique_key="k")
    story.claimed(2, "j1", fence=3)
    if first_ended is not None:
        story.finished(first_ended, "j1", "completed", fence=3)
    story.enqueued(second, "j2", call="c2", takes=Takes.NOTHING, unique_key=key)
    story.claimed(5, "j2", fence=5, process=B).finished(5.5, "j2", "completed", fence=5, process=B)
    return story.row("j1", "completed", queue="default").row("j2", "completed", queue="default").alive(30)


@pytest.mark.parametrize(
    ("first_ended", "second", "broken"),
    [(3, 3.5, []), (4, 3.5, ["I27"]), (None, 1.5, ["I27"]), (None, 3.5, [])],  # without its end, nobody can say
)
def test_a_key_has_one_unfinished_job_at_a_time(first_ended, second, broken):
    assert two_of_a_key(first_ended, second).checked().broken == broken


def test_jobs_of_different_keys_are_unfinished_side_by_side():
    assert two_of_a_key(4, 3.5, key="other").checked().is_clean


def test_a_caller_that_got_the_job_of_another_is_no_second_job():
    story = two_of_a_key(4, 4.5).called(3, "j3", call="c3", takes=Takes.NOTHING, unique_key="k")
    story.add(3.1, EnqueueAnswered, process="producer-a-5", call="c3", jobs=("j1",), new=(False,))

    assert story.checked().is_clean


def test_a_reply_that_names_a_job_that_never_existed_is_a_loss():
    story = two_of_a_key(4, 4.5).called(3, "j3", call="c3", takes=Takes.NOTHING, unique_key="k")
    story.add(3.1, EnqueueAnswered, process="producer-a-5", call="c3", jobs=("j9",), new=(False,))

    assert story.checked().broken == ["I1"]
