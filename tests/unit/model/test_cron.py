from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.model.cron import cron_times, zone_of
from holdfast.model.instants import to_datetime, to_micros

VIENNA = "Europe/Vienna"
ZONES = [VIENNA, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia", "UTC"]
MINUTE = timedelta(minutes=1)


def local(text: str, zone: str = VIENNA) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def run(expression: str, start: datetime, end: datetime, zone: str = VIENNA) -> list[str]:
    """Return the times between two instants, as the clocks of the zone show them, with their offset."""
    times = cron_times(expression, zone)
    found: list[str] = []
    time = times.after(to_micros(start))
    while time is not None and time < to_micros(end):
        found.append(to_datetime(time).astimezone(ZoneInfo(zone)).strftime("%d %H:%M %z"))
        time = times.after(time)
    return found


SPRING = local("2026-03-28 12:00"), local("2026-03-30 12:00")
AUTUMN = local("2026-10-24 12:00"), local("2026-10-26 12:00")


def test_a_time_that_the_clocks_skip_runs_once_right_after_the_gap():
    assert run("30 2 * * *", *SPRING) == ["29 03:00 +0200", "30 02:30 +0200"]


def test_a_time_that_the_clocks_show_twice_runs_once_at_the_first():
    assert run("30 2 * * *", *AUTUMN) == ["25 02:30 +0200", "26 02:30 +0100"]


def test_many_skipped_times_run_once_together():
    assert run("*/15 2 29 3 *", *SPRING) == ["29 03:00 +0200"]
    assert run("0,30 2,3 29 3 *", *SPRING) == ["29 03:00 +0200", "29 03:30 +0200"]


def test_many_repeated_times_of_a_named_hour_run_once_each():
    assert run("*/30 2 25 10 *", *AUTUMN) == ["25 02:00 +0200", "25 02:30 +0200"]


def test_an_expression_for_every_hour_runs_by_elapsed_time():
    night = local("2026-03-29 00:59"), local("2026-03-29 04:01")
    assert run("0 * * * *", *night) == ["29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]
    night = local("2026-10-25 01:29"), local("2026-10-25 03:01")
    assert run("30 * * * *", *night) == ["25 01:30 +0200", "25 02:30 +0200", "25 02:30 +0100"]
    assert run("30 0-23 * * *", *night) == run("30 * * * *", *night)


def test_every_five_minutes_has_no_pause_on_either_day():
    for start, end in (SPRING, AUTUMN):
        assert len(run("*/5 * * * *", start, end)) == (to_micros(end) - to_micros(start)) // 300_000_000 - 1


def test_a_midnight_that_the_clocks_skip_runs_at_the_end_of_the_gap():
    start, end = local("2026-04-23 12:00", "Africa/Cairo"), local("2026-04-24 12:00", "Africa/Cairo")
    assert run("0 0 * * *", start, end, "Africa/Cairo") == ["24 01:00 +0300"]


def test_a_day_that_was_skipped_altogether_runs_after_it():
    start, end = datetime(2011, 12, 29, tzinfo=UTC), datetime(2011, 12, 31, 12, tzinfo=UTC)
    assert run("30 9 * * *", start, end, "Pacific/Apia") == ["29 09:30 -1000", "31 00:00 +1400", "31 09:30 +1400"]


def test_the_29th_of_february_runs_in_leap_years_only():
    times = cron_times("0 12 29 2 *", "UTC")
    first = times.after(to_micros(datetime(2026, 1, 1, tzinfo=UTC)))
    assert first is not None
    second = times.after(first)
    assert second is not None
    assert [to_datetime(first).isoformat(), to_datetime(second).isoformat()] == [
        "2028-02-29T12:00:00+00:00",
        "2032-02-29T12:00:00+00:00",
    ]


def test_day_of_month_or_day_of_week_is_enough_if_both_are_given():
    start, end = local("2026-11-12 00:00"), local("2026-11-18 00:00")
    assert run("0 9 13 * MON", start, end) == ["13 09:00 +0100", "16 09:00 +0100"]


def test_names_and_last_days_are_understood():
    start, end = local("2026-11-01 00:00"), local("2026-12-01 00:00")
    assert run("0 9 L * *", start, end) == ["30 09:00 +0100"]
    assert run("0 9 * NOV FRI#2", start, end) == ["13 09:00 +0100"]
    assert run("@monthly", start, end + timedelta(days=1)) == ["01 00:00 +0100"]


def test_nothing_is_found_beyond_the_last_year():
    assert cron_times("0 0 1 1 *", "UTC").after(to_micros(datetime(9999, 6, 1, tzinfo=UTC))) is None


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("61 * * * *", "Bad minute"),
        ("* * 30 2 *", "Bad day-of-month"),
        ("@reboot", "five fields"),
        ("", "five fields"),
        ("0 0 L/2 * x", "invalid"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_remedy(expression: str, part: str):
    with pytest.raises(ConfigError, match=part):
        cron_times(expression, "UTC")


def test_an_expression_that_never_matches_is_refused():
    with pytest.raises(ConfigError, match="matches no day"):
        cron_times("0 0 */20 * MON#2", "UTC")  # on the 1st or 21st, and the second Monday


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "/usr/share/zoneinfo/UTC", "a\0b"])
def test_an_unknown_zone_is_refused(zone: str):
    with pytest.raises(ConfigError, match="timezone"):
        zone_of(zone)


def by_hand(minute: int, hours: set[int], zone: str, start: datetime, end: datetime) -> set[datetime]:
    """Return the instants at which a schedule is to run, by stepping through every minute of elapsed time."""
    tz = ZoneInfo(zone)
    found: set[datetime] = set()
    seen: set[datetime] = set()
    before = start.astimezone(tz).replace(tzinfo=None) - MINUTE
    instant = start
    while instant < end:
        shown = instant.astimezone(tz).replace(tzinfo=None)
        skipped = [before + MINUTE * step for step in range(1, max(1, (shown - before) // MINUTE))]
        for wanted in [*skipped, shown]:
            matches = wanted.minute == minute and wanted.hour in hours
            if matches and ((len(hours) == 24 and wanted == shown) or (len(hours) < 24 and wanted not in seen)):
                found.add(instant)
        seen.update([*skipped, shown])
        before, instant = shown, instant + MINUTE
    return found


@settings(max_examples=60, deadline=None)
@example(minute=30, hours=set(range(24)), zone="Australia/Lord_Howe", day="2026-04-05")
@example(minute=30, hours=set(range(24)), zone="Australia/Lord_Howe", day="2026-10-04")
@given(
    minute=st.integers(0, 59),
    hours=st.one_of(st.sets(st.integers(0, 23), min_size=1, max_size=4), st.just(set(range(24)))),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(
        ["2026-03-08", "2026-03-29", "2026-04-05", "2026-04-24", "2026-10-04", "2026-10-25", "2026-11-01"]
    ),
)
def test_it_agrees_with_a_walk_through_every_minute(minute: int, hours: set[int], zone: str, day: str):
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=30)
    end = start + timedelta(hours=72)
    times = cron_times(f"{minute} {','.join(map(str, sorted(hours)))} * * *", zone)
    found: list[int] = []
    time = times.after(to_micros(start) - 1)
    while time is not None and time < to_micros(end):
        found.append(time)
        time = times.after(time)
    assert found == sorted(set(found))
    # The first hours are left out: the walk does not know what the clocks showed before it began.
    known = to_micros(start + timedelta(hours=4))
    expected = {to_micros(instant) for instant in by_hand(minute, hours, zone, start, end)}
    assert [time for time in found if time >= known] == sorted(time for time in expected if time >= known)


@settings(max_examples=200, deadline=None)
@given(
    expression=st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "7 */3 1 * *", "@daily"]),
    zone=st.sampled_from(ZONES),
    instant=st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),  # noqa: DTZ001
)
def test_the_next_time_is_later_and_does_not_depend_on_where_the_search_began(
    expression: str, zone: str, instant: datetime
):
    times = cron_times(expression, zone)
    start = to_micros(instant.replace(tzinfo=UTC))
    found = times.after(start)
    assert found is not None
    assert found > start
    assert found % 1_000_000 == 0
    assert times.after(found - 1) == found
    assert times.after((start + found) // 2) == found or (start + found) // 2 == found
