from __future__ import annotations

import pytest
from tests.torture.stories import SECOND, A, B, Story

from holdfast.model.limits import UNBOUNDED
from holdfast.torture.events import Takes
from holdfast.torture.operator_events import LimitAnswered


def of_a_queue(
    *claimed: float, running: int = UNBOUNDED, step: float = 0, since: float = 1.5, lasts: float = 1
) -> Story:
    """Jobs of a queue with a limit, or a rate with two at once, are claimed at these times; the last by B."""
    story = Story()
    limit = {"running": running, "step_us": round(step * SECOND), "burst": 2}
    story.add(since, LimitAnswered, queue="slow", sent_us=story.us(since - 0.1), process="producer-a-5", **limit)
    for number, at in enumerate(claimed, start=1):
        job, process = f"j{number}", A if number < len(claimed) else B
        story.enqueued(1, job, call=f"c{number}", takes=Takes.NOTHING, queue="slow")
        story.claimed(at, job, fence=number, process=process, queue="slow")
        story.finished(at + lasts, job, "completed", fence=number, process=process)
        story.row(job, "completed", queue="slow")
    return story.alive(30).alive(30, B)


@pytest.mark.parametrize(
    ("claimed", "broken"),
    [
        ((2, 2.5, 3.2), []),  # the first has ended
        ((2, 2.5, 2.8), ["I31"]),
        ((2, 2.8, 2.99), []),  # the first may have ended when its end was sent
    ],
)
def test_a_queue_has_no_more_leases_than_its_limit(claimed, broken):
    assert of_a_queue(*claimed, running=2).checked().broken == broken


def test_claims_before_the_limit_was_set_are_not_judged_but_count():
    assert of_a_queue(2, 2, 2, running=2, since=2.5).checked().is_clean
    assert of_a_queue(2, 2, 2.7, running=2, since=2.5).checked().broken == ["I31"]


@pytest.mark.parametrize(
    ("claimed", "broken"),
    [
        ((2, 2, 3, 4, 5, 6), []),
        ((2, 2, 2, 2), ["I31"]),
        ((2, 2, 3, 3, 3, 3), ["I31"]),
        ((2, 3, 4, 4, 5, 6), []),
    ],
)
def test_claims_keep_the_rate_of_their_queue(claimed, broken):
    assert of_a_queue(*claimed, step=1, lasts=0.1).checked().broken == broken
