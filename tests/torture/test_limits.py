from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story

from holdfast.torture.events import Takes


def three_of_a_task(*claimed: float, most: int = 2, others: int | None = None) -> Story:
    """Jobs of a limited task are claimed at these times, each for a second; the last by B."""
    story = Story()
    for number, at in enumerate(claimed, start=1):
        job, process = f"j{number}", A if number < len(claimed) else B
        allowed = most if others is None or number < len(claimed) else others
        task = "pay" if allowed == most else "other"
        story.enqueued(1, job, call=f"c{number}", takes=Takes.NOTHING, max_running=allowed, task=task)
        story.claimed(at, job, fence=number, process=process)
        story.finished(at + 1, job, "completed", fence=number, process=process)
        story.row(job, "completed", queue="default")
    return story.alive(30).alive(30, B)


@pytest.mark.parametrize(
    ("claimed", "broken"),
    [
        ((2, 2.5, 3.2), []),  # the first has ended
        ((2, 2.5, 2.8), ["I29"]),
        ((2, 2, 2), ["I29"]),
        ((2, 2.8, 2.99), []),  # the first may have ended when its end was sent
    ],
)
def test_a_limited_task_has_no_more_leases_than_its_limit(claimed, broken):
    assert three_of_a_task(*claimed).checked().broken == broken


@pytest.mark.parametrize("most", [0, 3])
def test_tasks_without_a_limit_or_with_a_higher_one_have_more(most):
    assert three_of_a_task(2, 2, 2, most=most).checked().is_clean


def test_each_task_has_its_own_limit():
    assert three_of_a_task(2, 2, 2, others=1).checked().is_clean


@pytest.mark.parametrize(("keys", "broken"), [("aaa", ["I29"]), ("aab", []), ("abc", [])])
def test_each_limit_key_of_a_task_has_its_own_limit(keys, broken):
    story = Story()
    for number, key in enumerate(keys, start=1):
        job = f"j{number}"
        story.enqueued(1, job, call=f"c{number}", takes=Takes.NOTHING, max_running=2, limit_key=key)
        story.claimed(2, job, fence=number).finished(3, job, "completed", fence=number)
        story.row(job, "completed", queue="default")
    assert story.alive(30).checked().broken == broken


def test_the_leases_of_a_dead_worker_may_have_been_taken_from_it():
    story = Story()
    for number in (1, 2):
        story.enqueued(1, f"j{number}", call=f"c{number}", takes=Takes.NOTHING, max_running=1)
    story.claimed(2, "j1", fence=1).killed(2.1)
    story.claimed(3, "j2", fence=2, process=B).finished(3.1, "j2", "completed", fence=2, process=B)
    story.claimed(4, "j1", fence=3, attempt=2, process=B).finished(4.1, "j1", "completed", fence=3, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=2.9),), queue="default")
    story.row("j2", "completed", queue="default").alive(30, B)

    assert "I29" not in story.checked().broken
