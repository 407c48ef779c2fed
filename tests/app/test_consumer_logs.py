"""What the log says of events that were given up."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import App, Event
from holdfast.streams import event_retry


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


def of_streams(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "holdfast.streams"]


def names_this_file(record: logging.LogRecord) -> bool:
    """Whether the record carries a traceback that leads to the handler."""
    return record.exc_info is not None and Path(__file__).name in logging.Formatter().formatException(record.exc_info)
