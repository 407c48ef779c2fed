from __future__ import annotations

from typing import Any

import pytest
from tests.torture.stories import B, Story, done_well

from holdfast.torture.events import (
    EnqueueAnswered,
    EnqueueCalled,
    EnqueueRefused,
    EnqueueUnknown,
    OutsideAccepted,
    OutsideRefusal,
    Snapshot,
    Takes,
)


def test_an_effect_that_is_there_twice_is_doubled():
    assert "I2" in done_well().effect("j1", fence=7).checked().broken


def test_an_attempt_that_ran_twice_and_took_effect_once_is_not_doubled():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).killed(3)
    story.began(6, "j1", fence=5, attempt=2, process=B).committed(7, "j1", fence=5, process=B)
    story.row("j1", "completed", attempt=2, attempts=(story.kept(1, "lost", at=5.5),)).effect("j1", fence=5, attempt=2)

    assert story.checked().is_clean


def test_a_job_that_is_completed_under_two_fences_is_doubled():
    story = Story().enqueued(1, "j1", takes=Takes.NOTHING).began(2, "j1", fence=3)
    story.finished(3, "j1", "completed", fence=3).finished(4, "j1", "completed", fence=2)
    story.row("j1", "completed")

    assert "I2" in story.checked().broken


@pytest.mark.parametrize(("kind", "broken"), [(OutsideAccepted, ["I2"]), (OutsideRefusal, [])])
def test_the_outside_server_may_accept_a_key_once(kind, broken):
    story = Story().enqueued(1, "j1", takes=Takes.OUTSIDE).began(2, "j1", fence=3)
    story.add(3, OutsideAccepted, process="outside-main-3", job="j1", fence=3, key="j1")
    more = {"reason": "known"} if kind is OutsideRefusal else {}
    story.add(4, kind, process="outside-main-3", job="j1", fence=3, key="j1", **more).row("j1", "completed")

    assert story.checked().broken == broken


@pytest.mark.parametrize(("second", "broken"), [("p1", ["I2"]), ("p2", [])])
def test_what_was_asked_for_once_is_paid_once_though_another_job_pays_it(second, broken):
    story = Story()
    for number, payment in ((1, "p1"), (2, second)):
        job, fence = f"j{number}", number + 2
        story.enqueued(1, job, call=f"c{number}", takes=Takes.OUTSIDE).began(2, job, fence=fence)
        story.add(3, OutsideAccepted, process="outside-main-3", job=job, fence=fence, key=job, payment=payment)
        story.row(job, "completed")

    assert story.checked().broken == broken


def test_a_job_that_nobody_enqueued_is_a_phantom():
    assert Story().row("j9", "cancelled", attempt=0).checked().broken == ["I3"]


def test_a_job_whose_enqueue_was_refused_is_a_phantom():
    story = Story().called(1, "j1").add(2, EnqueueRefused, call="c1", jobs=("j1",), error="rolled back")

    assert story.row("j1", "cancelled", attempt=0).checked().broken == ["I3"]


def test_a_refused_enqueue_that_was_repeated_is_no_phantom():
    story = Story().called(1, "j1").add(2, EnqueueRefused, call="c1", jobs=("j1",), error="unavailable")
    story.called(3, "j1", call="c2")

    assert story.row("j1", "cancelled", attempt=0).checked().is_clean


def test_a_snapshot_with_fewer_jobs_than_were_acknowledged_is_seen():
    story = done_well().add(5, Snapshot, counts={"ready": 0}, sent_us=Story.us(4))

    assert story.checked().broken == ["I19"]


def test_a_snapshot_with_more_jobs_than_were_asked_for_is_seen():
    story = done_well().add(5, Snapshot, counts={"completed": 2}, sent_us=Story.us(4))

    assert story.checked().broken == ["I19"]


@pytest.mark.parametrize(("count", "broken"), [(1, []), (2, ["I19"])])
def test_what_was_refused_or_never_came_is_not_asked_for(count, broken):
    story = (
        done_well().called(2, "j2", call="c2").add(2.1, EnqueueRefused, call="c2", jobs=("j2",), error="rolled back")
    )
    story.called(2, "j3", call="c3").add(2.1, EnqueueUnknown, call="c3", jobs=("j3",), error="cut")
    options: dict[str, Any] = {"task": "pay", "queue": "default", "takes": Takes.NOTHING, "max_attempts": 3}
    story.add(2, EnqueueCalled, call="c4", jobs=(), size=2, **options)
    story.add(2.1, EnqueueRefused, call="c4", jobs=(), error="unavailable")
    story.add(2.2, EnqueueCalled, call="c5", jobs=(), size=2, **options)

    assert story.add(5, Snapshot, counts={"ready": count}, sent_us=Story.us(4)).checked().broken == broken


def test_a_refused_call_does_not_date_the_one_that_followed_it():
    story = Story().called(1, "j1").add(1.1, EnqueueRefused, call="c1", jobs=("j1",), error="unavailable")
    story.add(2, Snapshot, counts={"ready": 1}, sent_us=Story.us(1.9)).enqueued(3, "j1", call="c2")

    assert story.row("j1", "cancelled", attempt=0).checked().broken == ["I19"]


@pytest.mark.parametrize("count", [0, 1])
def test_a_snapshot_beside_an_enqueue_may_or_may_not_show_its_job(count):
    story = done_well().add(1.005, Snapshot, counts={"ready": count}, sent_us=Story.us(1.001))

    assert story.checked().is_clean


def test_a_final_dump_that_lacks_rows_is_seen():
    story = done_well()
    story._rows = 2

    assert story.checked().broken == ["I19"]


def test_a_batch_of_which_only_some_jobs_are_there_is_seen():
    story = Story().called(1, "j1", "j2").row("j1", "cancelled", attempt=0)

    verdict = story.checked()

    assert verdict.broken == ["I20"]
    assert verdict.timeline.startswith("the history of job j2"), "the one that is not there"


def test_an_unanswered_batch_may_be_there_as_a_whole():
    story = Story().called(1, "j1", "j2").row("j1", "cancelled", attempt=0).row("j2", "cancelled", attempt=0)

    assert story.checked().is_clean


@pytest.mark.parametrize(("there", "broken"), [((), []), (("j1",), ["I20"]), (("j1", "j2"), [])])
def test_a_batch_whose_ids_the_caller_does_not_know_is_counted_by_its_call(there, broken):
    story = Story()
    options: dict[str, Any] = {"task": "pay", "queue": "default", "takes": Takes.NOTHING, "max_attempts": 3}
    story.add(1, EnqueueCalled, call="c7", jobs=(), size=2, **options)
    for job in there:
        story.row(job, "cancelled", attempt=0, call="c7")

    assert story.checked().broken == broken


def test_an_answered_batch_of_unknown_ids_must_be_there():
    story = Story()
    options: dict[str, Any] = {"task": "pay", "queue": "default", "takes": Takes.NOTHING, "max_attempts": 3}
    story.add(1, EnqueueCalled, call="c7", jobs=(), size=2, **options)
    story.add(2, EnqueueAnswered, call="c7", jobs=("j1", "j2"))

    assert story.checked().broken == ["I1", "I20"]


@pytest.mark.parametrize("left", ["leases", "transactions", "connections", "processes"])
def test_whatever_is_left_after_the_drain_is_seen(left):
    assert done_well().checked(**{left: 1}).broken == ["I21"]


def test_a_damaged_store_is_seen():
    assert done_well().checked(integrity="row 3 missing from index").broken == ["I21"]


def test_a_running_job_after_the_drain_is_an_orphaned_lease():
    story = Story().enqueued(1, "j1").began(2, "j1", fence=3).row("j1", "running")

    assert story.checked().broken == ["I1", "I21"]
