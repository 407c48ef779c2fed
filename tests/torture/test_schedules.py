from __future__ import annotations

import pytest
from tests.torture.stories import SECOND, A, Story

from holdfast.torture.events import Takes
from holdfast.torture.operator_events import ScheduleAdded, ScheduleRemoving


def ticks(*seconds: float, until: float = 10, late: float = 0.1) -> Story:
    """A schedule of every second, added at 1.5, whose jobs have these nominal times; removed some time later."""
    story = Story()
    story.called(1.4, call="ticks", takes=Takes.NOTHING)
    story.add(1.5, ScheduleAdded, schedule="ticks", sent_us=story.us(1.4), every_us=SECOND, process="producer-a-5")
    for number, nominal in enumerate(seconds, start=1):
        job = f"j{number}"
        story.claimed(nominal + 0.5, job, fence=number)
        story.finished(nominal + 0.6, job, "completed", fence=number)
        at, enqueued = story.store_us(nominal), story.store_us(nominal + late)
        story.row(job, "completed", call="ticks", schedule="ticks", nominal_us=at, enqueued_us=enqueued)
    story.add(until, ScheduleRemoving, schedule="ticks", process="producer-a-5")
    return story.alive(until + 10)


@pytest.mark.parametrize(
    ("seconds", "broken"),
    [
        ((2, 3, 4, 5, 6), []),
        ((2, 3, 5, 6), ["I30"]),  # one was left out
        ((5, 6, 7), ["I30"]),  # the first ones were
        ((2, 3, 3, 4, 5), ["I30"]),  # one came twice
        ((2,), ["I30"]),  # and no more until long after the bound of 4 s
        ((2, 3, 4), []),
    ],
)
def test_each_nominal_time_has_one_job(seconds, broken):
    assert ticks(*seconds).checked().broken == broken


def test_a_job_does_not_come_before_its_time():
    assert ticks(2, 3, 4, 5, late=-0.2).checked().broken == ["I30"]


def test_a_schedule_without_a_job_is_found_if_it_was_there_for_long():
    assert ticks(until=3).checked().is_clean
    assert ticks(until=12).checked().broken == ["I30"]


def test_the_last_times_of_a_schedule_that_was_never_removed_are_not_judged():
    story = ticks(2, 3)
    story.records = [record for record in story.records if not isinstance(record[1], ScheduleRemoving)]

    assert story.alive(40, A).checked().is_clean
