"""The geometry of charts and graphs, and the texts of numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.job import JobState
from holdfast.server.dashboard.charts import HEIGHT, WIDTH, sparkline, throughput
from holdfast.server.dashboard.formats import NOTHING, ago, duration, number, pretty
from holdfast.server.dashboard.graph_layout import drawn
from holdfast.server.dashboard.read.query import searched
from holdfast.store.values import Count, GraphJob, JobGraph

NOW = datetime(2026, 3, 1, 12, 30, 20, tzinfo=UTC)
THIN = "\N{NARROW NO-BREAK SPACE}"


def count(minutes_ago: int, *, completed: int = 0, failed: int = 0) -> Count:
    minute = NOW.replace(second=0) - timedelta(minutes=minutes_ago)
    return Count(minute, "mails", "send", 0, completed, 0, failed, 0, 0, timedelta(0))


def graph(**parents: list[str]) -> JobGraph:
    jobs = [GraphJob(name, seq, "q", "t", JobState.READY, above) for seq, (name, above) in enumerate(parents.items())]
    return JobGraph(jobs, is_cut=False)


@pytest.mark.parametrize(("window", "bars"), [("1h", 60), ("6h", 72), ("24h", 72)])
def test_a_chart_covers_its_window_and_ends_now(window, bars):
    chart = throughput([count(0, completed=3), count(59, completed=1), count(2000, completed=9)], window, NOW)

    assert len(chart.bars) == bars
    assert chart.totals["completed"] == 4
    assert chart.bars[-1].segments
    assert all(0 <= bar.x <= WIDTH and bar.x + bar.width <= WIDTH for bar in chart.bars)


def test_bars_are_stacked_and_stay_inside():
    chart = throughput([count(0, completed=10_000, failed=1)], "1h", NOW)

    completed, failed = chart.bars[-1].segments
    assert (completed.series, failed.series) == ("completed", "failed")
    assert failed.height >= 1  # one among ten thousand is seen
    assert failed.y + failed.height <= completed.y + 0.01
    assert completed.y + completed.height == HEIGHT


def test_an_empty_chart_says_so():
    assert throughput([], "1h", NOW).is_empty


def test_a_sparkline_draws_only_what_happened():
    assert [bar.title for bar in sparkline([0, 2, 0, 4], "failed", "x").bars] == ["2", "4"]


def test_each_job_stands_right_of_its_parents_and_none_on_another():
    found = drawn(graph(d=["b", "c"], b=["a"], c=["a"], a=[]))

    places = {placed.job.id: (placed.x, placed.y) for placed in found.jobs}
    assert places["a"][0] < places["b"][0] == places["c"][0] < places["d"][0]
    assert len(set(places.values())) == 4
    assert len(found.edges) == 4
    assert all(x + found.box_width <= found.width and y + found.box_height <= found.height for x, y in places.values())


def test_a_parent_that_the_graph_leaves_out_has_no_line():
    assert drawn(graph(a=["elsewhere"])).edges == ()


@pytest.mark.parametrize(
    ("value", "text"), [(None, NOTHING), (0, "0"), (10_000, f"10{THIN}000"), (2.5, "2.5"), (12.4, "12")]
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NOTHING),
        (timedelta(microseconds=5), "<1 ms"),
        (timedelta(milliseconds=18), "18 ms"),
        (timedelta(hours=25), "1d 1h"),
    ],
)
def test_durations(value, text):
    assert duration(value) == text


def test_an_instant_has_its_exact_time_in_the_title():
    assert 'title="2026-03-01 12:30:20 UTC"' in ago(NOW)


def test_large_numbers_stay_exact():
    assert "12345678901234567890123" in pretty({"id": 12345678901234567890123})


def test_a_search_has_parts_and_words():
    assert searched("state:failed queue:mails 41207.9dbf x:y") == (
        {"state": "failed", "queue": "mails"},
        ["41207.9dbf", "x:y"],
    )
