from __future__ import annotations

from typing import Any

import pytest
from tests.torture.stories import Story

from holdfast.torture.checker.partition import by_job
from holdfast.torture.events import EnqueueCalled, Takes
from holdfast.torture.names import IN_GRAPHS

OPTIONS: dict[str, Any] = {"task": IN_GRAPHS[0], "takes": Takes.NOTHING}


def parents(first: str = "completed", second: str = "completed") -> Story:
    """Jobs j1 and j2 are claimed at 2 and end at 3 and 4."""
    story = Story().enqueued(1, "j1", "j2", **OPTIONS)
    for job, fence, end, state in (("j1", 1, 3, first), ("j2", 2, 4, second)):
        story.claimed(2, job, fence=fence).finished(end, job, state, fence=fence)
        story.row(job, state, queue="default", attempts=() if state == "completed" else (story.kept(1, state),))
    return story.alive(30)


def child(story: Story, *, run_anyway: bool = False) -> Story:
    return story.enqueued(1.5, "j3", call="c2", after=("j1", "j2"), run_anyway=run_anyway, **OPTIONS)


def runs(story: Story, at: float) -> Story:
    story.claimed(at, "j3", fence=3).finished(at + 1, "j3", "completed", fence=3)
    return story.row("j3", "completed", queue="default")


@pytest.mark.parametrize(("at", "broken"), [(2.5, ["I28"]), (3.5, ["I28"]), (4.5, []), (3.995, [])])
def test_a_job_starts_after_the_end_of_all_its_parents(at, broken):
    assert runs(child(parents()), at).checked().broken == broken


def test_the_end_of_an_attempt_that_is_retried_is_not_the_end_of_a_parent():
    story = Story().enqueued(1, "j1", **OPTIONS).claimed(2, "j1", fence=1).finished(3, "j1", "retried", fence=1)
    story.claimed(5, "j1", fence=4, attempt=2).finished(6, "j1", "completed", fence=4)
    story.row("j1", "completed", attempt=2, queue="default", attempts=(story.kept(1, "retried"),))
    story.enqueued(1.5, "j3", call="c2", after=("j1",), **OPTIONS)

    assert runs(story.alive(30), 4).checked().broken == ["I28"]


@pytest.mark.parametrize(("run_anyway", "broken"), [(False, ["I28"]), (True, [])])
def test_a_job_after_a_failed_one_runs_only_if_it_runs_anyway(run_anyway, broken):
    assert runs(child(parents("failed"), run_anyway=run_anyway), 5).checked().broken == broken


@pytest.mark.parametrize(
    ("first", "run_anyway", "broken"),
    [("failed", False, []), ("failed", True, ["I28"]), ("completed", False, ["I28"])],
)
def test_a_job_is_cancelled_only_because_a_parent_failed(first, run_anyway, broken):
    story = child(parents(first), run_anyway=run_anyway).row("j3", "cancelled", attempt=0, queue="default")

    assert story.checked().broken == broken


def test_a_job_does_not_stay_blocked_when_all_its_parents_have_ended():
    assert child(parents()).row("j3", "blocked", attempt=0, queue="default").checked().broken == ["I1", "I28"]


def test_each_job_of_a_chain_waits_for_the_one_before():
    call = EnqueueCalled(
        at_us=1, call="c", jobs=("a", "b", "c", "d"), max_attempts=3, queue="q", after=("p",), chain=3, **OPTIONS
    )

    split = {job: part.after for job, part in by_job(call) if isinstance(part, EnqueueCalled)}

    assert split == {"a": ("p",), "b": ("p", "a"), "c": ("p", "b"), "d": ("p",)}
