from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from holdfast.cli.times import duration, instant
from holdfast.reports.times import iso, relative, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("1.5", 1.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("7d", 604800)],
)
def test_durations_are_read_with_and_without_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m30s", 90), ("3m 20s", 200), ("1h5m", 3900), ("1d 6h", 108000), ("2s500ms", 2.5), ("1d1h1m1s1ms", 90061.001)],
)
def test_a_duration_of_several_units_is_their_sum(text, seconds):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("seconds", [4, 42, 60, 200, 3600 * 30])
def test_a_span_that_is_told_can_be_given(seconds):
    assert duration(span(timedelta(seconds=seconds))) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "5x", "nan", "inf", "m", "30s1m", "1m1m", "1m 30", "5 5s", "1ms1s", "1 m m", "-3m 20s", "1.5.5s"],
)
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(click.BadParameter, match=r"is not a duration: .* 1h 30m"):
        duration(text)


def test_an_instant_is_read_with_its_zone():
    assert instant("2026-03-01T02:00:00+02:00") == instant("2026-03-01T00:00:00Z") == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [("2026-03-01T00:00:00", "add Z for UTC"), ("2026-03-01", "add Z for UTC"), ("soon", "2026-03-01T00:00:00Z")],
)
def test_what_is_no_instant_is_refused_with_the_remedy(text, told):
    with pytest.raises(click.BadParameter, match=told):
        instant(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (4.25, "4.2s"), (42, "42s"), (60, "1m"), (200, "3m 20s"), (3600 * 30, "1d 6h"), (-200, "-3m 20s")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds, text):
    assert span(timedelta(seconds=seconds)) == text


def test_an_instant_is_told_as_past_or_future():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert relative(now - timedelta(minutes=3), now) == "3m ago"
    assert relative(now + timedelta(hours=2), now) == "in 2h"


def test_an_instant_in_json_is_utc_to_the_microsecond():
    assert iso(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == "2026-01-02T03:04:05.000006Z"
