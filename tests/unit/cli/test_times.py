from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from holdfast.cli.times import duration, iso, relative, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("1.5", 1.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("7d", 604800)],
)
def test_durations_are_read_with_and_without_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "5x", "nan", "inf", "1m30s", "m"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(click.BadParameter):
        duration(text)


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
