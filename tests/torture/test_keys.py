from __future__ import annotations

import pytest
from tests.torture.stories import A, B, Story

from holdfast.torture.events import Extended, Takes

SECOND = 1_000_000


def two_of_a_key(first: float, ended: float | None, second: float, *, key: str = "default/k1") -> Story:
    """Job j1 of a key is claimed by A and finished; then j2 of a key is claimed by B, asked for a tenth before."""
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, queue="default/k1")
    story.enqueued(1.1, "j2", call="c2", takes=Takes.NOTHING, queue=key)
    story.claimed(first, "j1", fence=3)
    if ended is not None:
        story.finished(ended, "j1", "completed", fence=3)
    story.claimed(second, "j2", fence=5, process=B, sent=second - 0.1)
    return story.row("j1", "completed", queue="default").row("j2", "completed", queue="default").alive(30)


@pytest.mark.parametrize(
    ("first", "ended", "second", "broken"),
    [
        (2, 2.5, 3, []),
        (2, 3.5, 3, ["I10"]),
        (2, None, 3.9, ["I10"]),
        (2, None, 4.1, []),  # its lease has expired
        (2, None, 2.05, []),  # asked for before the first had its answer: nobody can say
    ],
)
def test_one_job_of_a_key_is_leased_at_a_time(first, ended, second, broken):
    assert two_of_a_key(first, ended, second).checked().broken == broken


def test_jobs_of_different_keys_are_leased_side_by_side():
    assert two_of_a_key(2, 3.5, 3, key="default/k2").checked().is_clean


def test_jobs_without_a_key_are_leased_side_by_side():
    story = Story()
    for number in (1, 2):
        story.enqueued(1, f"j{number}", call=f"c{number}", takes=Takes.NOTHING).claimed(2, f"j{number}", fence=3)
        story.row(f"j{number}", "completed", queue="default")

    assert story.checked().is_clean


def test_two_jobs_of_a_key_in_one_claim_are_seen():
    story = Story()
    for number in (1, 2):
        story.enqueued(1, f"j{number}", call=f"c{number}", takes=Takes.NOTHING, queue="default/k1")
        story.claimed(2, f"j{number}", fence=3).row(f"j{number}", "completed", queue="default")

    verdict = story.checked()

    assert verdict.broken == ["I10"]
    assert verdict.timeline.startswith("the history of job j2")


@pytest.mark.parametrize(("verdict", "broken"), [("done", ["I10"]), ("lost", []), ("unknown", [])])
def test_an_extension_keeps_the_next_of_the_key_waiting(verdict, broken):
    story = two_of_a_key(2, None, 4.5)
    story.add(3, Extended, job="j1", fence=3, verdict=verdict, sent_us=story.us(2.9), lease_us=2 * SECOND)

    assert story.checked().broken == broken


def test_a_dead_worker_holds_no_key():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING, queue="default/k1").claimed(2, "j1", fence=3)
    story.enqueued(1.1, "j2", call="c2", takes=Takes.NOTHING, queue="default/k1").killed(2.5, A)
    story.claimed(3, "j2", fence=5, process=B)
    story.row("j1", "cancelled", queue="default", attempts=(story.kept(1, "lost", at=2.9),))

    assert story.row("j2", "completed", queue="default").checked().is_clean
