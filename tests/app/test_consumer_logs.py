"""What the log says of events that were given up, and of partitions that move."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import App, Event
from holdfast.streams import event_retry
from holdfast.streams.node import Node


@pytest.mark.parametrize(
    ("on_error", "says"),
    [
        ("park", "is parked, with the later events of its stream, after 2 attempts: ValueError: no"),
        ("skip", "is skipped after 2 attempts: ValueError: no"),
    ],
)
async def test_an_event_that_is_given_up_is_told_of_with_its_error(tmp_path: Path, caplog, on_error, says):
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.consumer("billing", category="orders", max_attempts=2, retry=0.01, on_error=on_error)
        async def billing(event: Event) -> None:
            raise ValueError("no")

        await append(app, "a", 1)
        with caplog.at_level(logging.ERROR, "holdfast.streams"):
            async with running(app.node(timing=QUICK)):
                await eventually(drained(app))

    (record,) = caplog.records
    assert record.getMessage().startswith("consumer billing: <Event placed (orders/a@1, partition ")
    assert record.getMessage().endswith(says)
    assert names_this_file(record)


async def test_the_traceback_of_an_event_is_logged_at_its_first_failure_and_when_it_begins_to_block(
    tmp_path: Path, caplog
):
    tries = 0
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.consumer("billing", category="orders", max_attempts=3, retry=0.01)
        def billing(event: Event) -> None:
            nonlocal tries
            tries += 1
            if tries <= 6:
                raise ValueError("no")

        await append(app, "a", 1)
        with caplog.at_level(logging.WARNING, "holdfast.streams"):
            async with running(app.node(timing=QUICK)):
                await eventually(drained(app))

    records = of_streams(caplog)
    assert [names_this_file(record) for record in records] == [True, False, True, False, False, False]
    assert "failed (attempt 1)" in records[0].getMessage()
    assert "blocks its partition (attempt 3)" in records[2].getMessage()
    assert not any("StoredEvent" in record.getMessage() for record in records)


async def test_the_traceback_of_an_event_that_blocks_from_its_first_failure_on_is_logged_once(
    tmp_path: Path, caplog, monkeypatch
):
    monkeypatch.setattr(event_retry, "_BLOCKED_WAIT", timedelta(seconds=0.01))
    tries = 0
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.consumer("billing", category="orders", retry=lambda attempt, error: None)
        async def billing(event: Event) -> None:
            nonlocal tries
            tries += 1
            if tries <= 3:
                raise ValueError("no")

        await append(app, "a", 1)
        with caplog.at_level(logging.WARNING, "holdfast.streams"):
            async with running(app.node(timing=QUICK)):
                await eventually(drained(app))

    assert [names_this_file(record) for record in of_streams(caplog)] == [True, False, False]


async def test_the_traceback_of_a_batch_that_failed_is_logged_before_its_events_are_tried_one_by_one(
    tmp_path: Path, caplog
):
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.consumer("billing", category="orders", batch=10)
        async def billing(events: list[Event]) -> None:
            if len(events) > 1:
                raise ValueError("too many")

        await append(app, "a", 3)
        with caplog.at_level(logging.WARNING, "holdfast.streams"):
            async with running(app.node(timing=QUICK)):
                await eventually(drained(app))

    (record,) = of_streams(caplog)
    assert "a batch of 3 events failed" in record.getMessage()
    assert names_this_file(record)


async def test_moves_of_partitions_are_logged_in_one_line_per_consumer_and_change(tmp_path: Path, caplog):
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.category("orders", partitions=4)

        @app.consumer("billing", category="orders")
        async def billing(event: Event) -> None: ...

        first, second = app.node(node_id="anna", timing=QUICK), app.node(node_id="ben", timing=QUICK)

        async def shared() -> bool:
            return len(first.status().shares) == len(second.status().shares) == 2

        async def all_taken() -> bool:
            return len(first.status().shares) == 4

        with caplog.at_level(logging.INFO, "holdfast.streams"):
            async with running(first):
                await eventually(all_taken)
                async with running(second):
                    await eventually(shared)
            lines = moves(caplog)

    assert lines[0] == "consumer billing: partitions 0, 1, 2, 3 of orders granted"
    text = "\n".join(lines[1:])  # moves that come within a moment share a line
    moved = re.search(r"consumer billing: partitions? (\d).* of orders revoked, finishing the current events", text)
    assert moved is not None
    for change in ("released", "granted"):
        assert re.search(rf"consumer billing: partitions? [\d, ]*{moved[1]}[\d, ]* of orders {change}", text)
    assert re.fullmatch(r"consumer billing: partitions [\d, ]+ of orders released", lines[-1])


async def test_the_leader_logs_which_partitions_it_takes_over_from_a_dead_node(tmp_path: Path, caplog):
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.category("orders", partitions=4)

        @app.consumer("billing", category="orders")
        async def billing(event: Event) -> None: ...

        backend = await app.opened()
        dead = app.node(node_id="ben", timing=QUICK)
        running_dead = asyncio.create_task(dead.run())

        async def all_taken() -> bool:
            return len(dead.status().shares) == 4

        await eventually(all_taken)
        with caplog.at_level(logging.INFO, "holdfast.streams"):
            await stop_without_leaving(dead, running_dead)
            survivor = app.node(node_id="anna", timing=QUICK)

            async def taken_over() -> bool:
                return len(survivor.status().shares) == 4

            async with running(survivor):
                await eventually(taken_over)
        assert backend is await app.opened()

    assert "consumer billing: partitions 0, 1, 2, 3 of orders taken over from node ben (dead: no heartbeat)" in moves(
        caplog
    )


async def stop_without_leaving(node: Node, task: asyncio.Task[None]) -> None:
    """End a node as a crash does: it releases nothing and does not leave."""
    node.__dict__["_depart"] = node.__dict__["_drain"] = lambda _: asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    shares = node.__dict__["_shares"]
    for _, consuming in list(shares.__dict__["_working"].values()):
        consuming.cancel()


def moves(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in of_streams(caplog) if record.getMessage().startswith("consumer ")]


def of_streams(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "holdfast.streams"]


def names_this_file(record: logging.LogRecord) -> bool:
    """Whether the record carries a traceback that leads to the handler."""
    return record.exc_info is not None and Path(__file__).name in logging.Formatter().formatException(record.exc_info)
