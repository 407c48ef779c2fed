"""The claim order, and when a job is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.job import NewJob
from holdfast.model.turn import PRIORITY_STEP, due_at, run_at_of, turn_of

MINUTE = PRIORITY_STEP // timedelta(microseconds=1)


@pytest.mark.parametrize("priority", [-3, 0, 7])
def test_a_priority_is_a_head_start(priority):
    assert turn_of(MINUTE, priority) == MINUTE - priority * MINUTE
    assert run_at_of(turn_of(MINUTE, priority), priority) == MINUTE


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, 5),
        ({"delay": timedelta(microseconds=3)}, 8),
        ({"run_at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}, 1_000_000),
    ],
)
def test_a_job_is_due_now_after_its_delay_or_at_its_instant(when, expected):
    assert due_at(NewJob(id="x", queue="q", task="t", payload="{}", **when), now=5) == expected
