"""What the log says of events that were given up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import App, Event


@pytest.mark.parametrize(
    ("on_error", "says"),
    [
        ("park", "is parked, with the later ones of its stream, after 2 attempts: ValueError: no"),
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
    assert record.getMessage().startswith("consumer billing: ")
    assert record.getMessage().endswith(says)
