"""`holdfast top`: what a frame shows, what it costs, and that it fits the screen."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.unit.cli.conftest import HOSTILE, SHOWN, Shop, park

from holdfast import App
from holdfast.backends.sqlite import execute
from holdfast.cli.top import look
from holdfast.cli.top_view import TopSnapshot, render
from holdfast.reports.failures import failure_groups
from holdfast.reports.rates import QueueRate, RateMeter
from holdfast.store.values import Count, WorkerHeartbeat


def _beat(shop: Shop, worker_id: str, *, lease: float = 30.0) -> None:
    heartbeat = WorkerHeartbeat(worker_id, "host", 1, None, 10, timedelta(seconds=lease), 2)

    async def tell(backend):
        extender = backend.extender()
        extender.heartbeat(heartbeat)
        extender.close()

    shop.within(tell)


def _look(shop: Shop):
    async def whole():
        async with App(shop.url) as app:
            return await look(app)

    return asyncio.run(whole())


def _shown(snapshot: TopSnapshot) -> list[str]:
    out = Console(width=80, height=24, file=io.StringIO())
    with out.capture() as captured:
        out.print(render(snapshot, 80, 24))
    return captured.get().splitlines()


def _lines(shop: Shop, width: int, height: int) -> list[str]:
    out = Console(width=width, height=height, file=io.StringIO())
    with out.capture() as captured:
        out.print(render(_look(shop), width, height))
    return captured.get().splitlines()


def test_a_frame_shows_queues_workers_failures_and_consumers(streams):
    for _ in range(4):
        streams.enqueue()
    streams.fail("no funds")
    streams.fail("no funds")
    streams.complete()
    _beat(streams, "alive")
    _beat(streams, "dead", lease=0.0)
    park(streams)
    frame = streams.json("top")
    (queue,) = frame["queues"]
    assert (queue["name"], queue["state"], queue["ready"], queue["failed"]) == ("orders", "open", 1, 2)
    assert queue["completed_per_minute"] > 0
    assert {worker["worker_id"]: worker["state"] for worker in frame["workers"]} == {"alive": "live", "dead": "silent"}
    (failure,) = frame["failures"]
    assert (failure["task"], failure["error"], failure["jobs"]) == ("charge", "ValueError: no funds", 2)
    (consumer,) = frame["consumers"]
    assert (consumer["name"], consumer["state"], consumer["lag"], consumer["parked"]) == ("billing", "running", 1, 2)
    shown = "\n".join(streams.screen("top", "--once"))
    for words in ("1 ready", "2 failed", "orders", "alive", "dead", "no funds", "billing", "node-a"):
        assert words in shown


def test_a_single_frame_shows_numbers_and_live_ones_rates_only_once_they_are_measured(shop):
    for _ in range(3):
        shop.enqueue()
    shop.complete()
    heading, row = shop.screen("top", "--once")[3:5]
    assert heading.split()[5:11] == ["in", "5", "min", "done", "5", "min"]
    assert row.split()[5:7] == ["3", "1"]
    seen = msgspec.structs.replace(_look(shop), is_live=True)
    heading, row = _shown(seen)[3:5]
    assert heading.split()[5:7] == ["in/min", "done/min"] or heading.split()[5] == "oldest"
    assert "3" not in row.split()[5:7]
    measured = {"orders": QueueRate(enqueued=600.0, completed=12.34)}
    heading, row = _shown(msgspec.structs.replace(seen, measured=measured))[3:5]
    assert heading.split()[5:7] == ["in/min", "done/min"]
    assert row.split()[5:7] == ["600", "12"]


def test_counting_stops_where_it_would_take_long(shop, monkeypatch):
    monkeypatch.setattr("holdfast.cli.top.MOST_COUNTED", 2)
    for _ in range(3):
        shop.enqueue()
    assert shop.screen("top", "--once")[1].startswith("2+ ready")
    (queue,) = shop.json("top")["queues"]
    assert (queue["ready"], queue["at_least"]) == (2, ["ready"])


def test_a_pipe_gets_one_frame(shop):
    shop.enqueue()
    assert "1 ready" in shop.run("top", "--once").stdout
    assert shop.run("top").stdout.count("1 ready") == 1


def test_a_frame_without_anything_says_what_to_do(shop):
    shop.run("schema", "install")
    shown = shop.run("top", "--once").stdout
    assert "No queues. The first job creates one." in shown
    assert "No workers: start one with `holdfast worker run`." in shown


def test_a_frame_fits_the_screen_and_tells_how_much_it_leaves_out(streams):
    for number in range(20):
        streams.enqueue("charge", "--arg", "order_id=7", "--queue", f"queue-with-quite-a-long-name-{number}")
        _beat(streams, f"worker-with-quite-a-long-name-{number}.83c2de8a")
    park(streams)
    lines = _lines(streams, 80, 24)
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80
    assert sum("more" in line for line in lines) == 2
    assert len(_lines(streams, 120, 60)) > len(lines)


def test_stored_text_does_not_act_on_the_terminal(shop):
    shop.enqueue()
    shop.fail(HOSTILE)
    assert SHOWN[:8] in "\n".join(_lines(shop, 200, 24))


def test_failures_are_grouped_by_task_and_error_and_the_most_frequent_comes_first(shop):
    for message in ("rare", "no order 7", "no order 123"):
        shop.enqueue()
        shop.fail(message)
    groups = failure_groups(_look(shop).failed)
    assert [(group.error, group.jobs) for group in groups] == [
        ("ValueError: no order 123", 2),
        ("ValueError: rare", 1),
    ]
    assert groups[0].last_at > groups[1].last_at


def test_rates_between_frames_follow_what_happens_now():
    meter, start = RateMeter(), datetime(2026, 11, 16, 12, 0, 30, tzinfo=UTC)

    def count(minute: int, completed: int) -> Count:
        at = start.replace(second=0) + timedelta(minutes=minute)
        return Count(at, "orders", "charge", 0, completed, 0, 0, 0, 0, timedelta(0))

    def completed(seconds: float, *counts: Count) -> float | None:
        rates = meter.add(counts, start + timedelta(seconds=seconds))
        return None if rates is None else rates["orders"].completed

    assert completed(0, count(-1, 500), count(0, 100)) is None
    assert completed(1, count(-1, 500), count(0, 110)) == pytest.approx(600)
    assert completed(2, count(-1, 500), count(0, 120)) == pytest.approx(600)
    assert completed(31, count(0, 120), count(1, 29)) == pytest.approx(60)  # an old minute fell out of the window
    assert completed(41, count(0, 120), count(1, 29)) == 0


def test_a_frame_costs_the_same_few_statements_however_much_there_is(streams, monkeypatch, tmp_path):
    asked: Counter[str] = Counter()
    real = execute._rows

    def counting(tx, ask):
        asked[ask.statement] += 1
        return real(tx, ask)

    monkeypatch.setattr(execute, "_rows", counting)
    streams.enqueue()
    asked.clear()
    _look(streams)
    few = dict(asked)
    for _ in range(5):
        streams.enqueue("charge", "--arg", "order_id=7", "--queue", "another")
        streams.fail()
        streams.enqueue()
    _beat(streams, "alive")
    park(streams)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        assert connection.execute("select count(*) from holdfast_failed").fetchone() == (5,)
    asked.clear()
    _look(streams)
    assert dict(asked) == few
    assert set(few) >= {"queues", "counts", "workers", "list_failed", "list_consumers"}
    assert sum(few.values()) <= 9
