from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.model.ids import is_id
from holdfast.model.instants import to_micros
from holdfast.model.schedule import (
    FUTURE,
    GRACE,
    Firing,
    Missed,
    Recurrence,
    delay_of,
    firing,
    first_after,
    is_set_back,
    recurrence,
    tick_id,
)

NOON = to_micros(datetime(2026, 11, 16, 12, tzinfo=UTC))
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
MANY = 1000


def each_minutes(minutes: int, **settings_: Any) -> Recurrence:
    return recurrence(f"*/{minutes} * * * *", **settings_)


def minutes_of(found: Firing) -> list[float]:
    return [(time - NOON) / MINUTE for time in found.times]


def test_a_schedule_that_is_not_due_fires_nothing():
    assert firing(each_minutes(5), NOON, NOON - 1, MANY) == Firing([], NOON)


@pytest.mark.parametrize("missed", list(Missed))
def test_what_is_due_now_fires_whatever_becomes_of_missed_times(missed: Missed):
    assert firing(each_minutes(5, missed=missed), NOON, NOON + SECOND, MANY) == Firing([NOON], NOON + 5 * MINUTE)


def test_skip_fires_nothing_that_is_more_than_a_minute_late():
    times = each_minutes(5, missed="skip")
    assert firing(times, NOON, NOON + 2 * MINUTE, MANY) == Firing([], NOON + 5 * MINUTE)
    assert firing(times, NOON, NOON + MINUTE, MANY) == Firing([NOON], NOON + 5 * MINUTE)
    assert minutes_of(firing(times, NOON, NOON + 60 * MINUTE, MANY)) == [60]


def test_once_fires_the_latest_of_many_missed_times():
    found = firing(each_minutes(5, missed="once"), NOON, NOON + 33 * MINUTE, MANY)
    assert minutes_of(found) == [30]
    assert found.next_at == NOON + 35 * MINUTE


def test_once_fires_nothing_older_than_the_window():
    times = recurrence("0 12 * * *", missed="once", window=timedelta(hours=2))
    assert firing(times, NOON, NOON + 2 * HOUR, MANY) == Firing([NOON], NOON + 24 * HOUR)
    assert firing(times, NOON, NOON + 2 * HOUR + 1, MANY) == Firing([], NOON + 24 * HOUR)


def test_all_fires_each_missed_time_within_the_window():
    times = each_minutes(5, missed="all", window=timedelta(minutes=20))
    found = firing(times, NOON, NOON + 33 * MINUTE, MANY)
    assert minutes_of(found) == [15, 20, 25, 30]
    assert found.next_at == NOON + 35 * MINUTE


def test_all_fires_in_batches_and_goes_on_where_it_ended():
    times = each_minutes(5, missed="all")
    found = firing(times, NOON, NOON + 33 * MINUTE, 3)
    assert minutes_of(found) == [0, 5, 10]
    assert minutes_of(firing(times, found.next_at, NOON + 33 * MINUTE, 3)) == [15, 20, 25]


def test_a_missed_02_30_of_a_switch_day_fires_once():
    times = recurrence("30 2 * * *", timezone="Europe/Vienna", missed="all")
    sunday = to_micros(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    assert firing(times, sunday, sunday + 5 * HOUR, MANY).times == [sunday]


def test_a_year_of_outage_is_decided_quickly():
    times = each_minutes(1, missed="once", window=timedelta(days=365 * 3))
    assert minutes_of(firing(times, NOON, NOON + 365 * 24 * HOUR, MANY)) == [365 * 24 * 60]
    rare = recurrence("0 0 29 2 *", missed="once", window=timedelta(days=365 * 9))
    leap = to_micros(datetime(2028, 2, 29, tzinfo=UTC))
    assert firing(rare, leap, to_micros(datetime(2031, 1, 1, tzinfo=UTC)), MANY).times == [leap]


def test_a_period_has_the_same_times_wherever_it_is_defined():
    times = recurrence(every=timedelta(minutes=7))
    first = first_after(times, NOON)
    assert first % (7 * MINUTE) == 0
    assert first_after(times, first - 1) == first
    assert first_after(times, first) == first + 7 * MINUTE
    assert times.latest(first + 1, 0) == first
    assert times.latest(first + 1, first + 1) is None


def test_a_schedule_without_a_next_time_is_never_due():
    end = to_micros(datetime(9999, 6, 1, tzinfo=UTC))
    assert first_after(recurrence("0 0 1 1 *"), end) == FUTURE


def test_a_small_step_back_changes_nothing():
    assert not is_set_back(NOON, NOON + MINUTE)
    assert not is_set_back(NOON, NOON - MINUTE)
    assert is_set_back(NOON, NOON - MINUTE - 1)


def test_jitter_is_the_same_at_each_call_and_differs_between_times_and_schedules():
    times = recurrence("0 * * * *", jitter=60)
    delays = {delay_of(name, NOON + hour * HOUR, times) for name in ("a", "b") for hour in range(50)}
    assert len(delays) == 100
    assert all(0 <= delay < MINUTE for delay in delays)
    assert max(delays) > 50 * SECOND
    assert delay_of("a", NOON, times) == delay_of("a", NOON, times)
    assert delay_of("a", NOON, recurrence("0 * * * *")) == 0


def test_the_id_of_a_tick_follows_from_schedule_and_time():
    assert tick_id("a", NOON) == tick_id("a", NOON)
    assert is_id(tick_id("a", NOON))
    ids = {tick_id(name, NOON + step) for name in ("a", "b", "a 1") for step in (0, 1, MINUTE)}
    assert len(ids) == 9
    assert tick_id("a", NOON)[14] == "7"
    assert tick_id("a", NOON + HOUR) > tick_id("b", NOON)


@pytest.mark.parametrize(
    ("settings_", "part"),
    [
        ({}, "either"),
        ({"cron": "* * * * *", "every": 5}, "either"),
        ({"every": 0.5}, "once a second"),
        ({"every": 5, "timezone": "Europe/Vienna"}, "no effect"),
        ({"cron": "* * * * *", "timezone": 3}, "not a string"),
        ({"cron": 5}, "not a string"),
        ({"cron": "* * * * *", "missed": "never"}, "skip, once, all"),
        ({"cron": "* * * * *", "jitter": -1}, "jitter"),
        ({"cron": "* * * * *", "window": "1d"}, "window"),
    ],
)
def test_wrong_settings_are_refused(settings_: dict[str, Any], part: str):
    with pytest.raises(ConfigError, match=part):
        recurrence(settings_.pop("cron", None), **settings_)


recurrences = st.builds(
    recurrence,
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 * * * MON", "17 3,15 * * *"]),
    timezone=st.sampled_from(["Europe/Vienna", "UTC", "Australia/Lord_Howe"]),
    missed=st.sampled_from(list(Missed)),
    window=st.sampled_from([timedelta(0), timedelta(minutes=20), timedelta(days=1), timedelta(days=4)]),
) | st.builds(
    recurrence,
    every=st.integers(60, 90_000).map(lambda seconds: timedelta(seconds=seconds)),
    missed=st.sampled_from(list(Missed)),
)


@settings(max_examples=150, deadline=None)
@given(
    times=recurrences, waits=st.lists(st.integers(1, 3 * 24 * 60), min_size=1, max_size=6), limit=st.integers(1, 500)
)
def test_no_time_fires_twice_and_what_the_policy_asks_for_fires(times: Recurrence, waits: list[int], limit: int):
    """Workers look at the schedule after the given waits, in minutes, across the switch of the clocks."""
    now = to_micros(datetime(2026, 10, 23, 12, tzinfo=UTC))
    next_at = first_after(times, now)
    fired: list[int] = []
    for wait in waits:
        before, now = now, now + wait * MINUTE
        due = [time for time in iterate(times, before, now) if time >= next_at]
        new: list[int] = []
        while True:
            found = firing(times, next_at, now, limit)
            new += found.times
            assert found.next_at > next_at or not found.times
            next_at = found.next_at
            if next_at > now or not found.times:
                break
        assert next_at == first_after(times, now)
        window = {Missed.SKIP: GRACE}.get(times.missed, times.window) // timedelta(microseconds=1)
        wanted = [time for time in due if time >= now - window]
        assert new == (wanted if times.missed is Missed.ALL else wanted[-1:])
        fired += new
    assert fired == sorted(set(fired))


def iterate(times: Recurrence, start: int, end: int) -> list[int]:
    found: list[int] = []
    time = times.after(start)
    while time is not None and time <= end:
        found.append(time)
        time = times.after(time)
    return found


@given(times=recurrences, now=st.integers(NOON, NOON + 365 * 24 * HOUR))
@settings(max_examples=100, deadline=None)
def test_the_latest_time_is_the_one_before_the_next(times: Recurrence, now: int):
    latest = times.latest(now, now - 9 * 24 * HOUR)
    assert latest is not None
    assert latest <= now
    following = times.after(latest)
    assert following is not None
    assert following > now
