"""A job that uses no feature runs the same statements on SQLite whatever else is in the store: these."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.every_feature import use_every_feature
from tests.sqlite.conftest import Heard

from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import a_job, claim, enqueue
from holdfast.testing.stores import open_store

ENQUEUE = ["take_seqs", "find_lane", "insert_job", "new_to_ready", "count_events"]
CLAIM = ["claimable_lanes", "claimable_lanes", "take_fence", "front_of_lane", "lease_front", "leave_front"]
COMPLETE = {1: "complete_one", 500: "complete_many"}


@pytest.mark.parametrize("number", COMPLETE)
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside_every_feature"])
async def test_a_plain_job_is_enqueued_claimed_and_completed_by_these_statements(
    tmp_path: Path, heard: Heard, number: int, *, is_alone: bool
):
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        if not is_alone:
            await use_every_feature(backend)
        await enqueue(backend, a_job("plain"))
        await claim(backend, queues=["plain"])
        heard.since()

        await enqueue(backend, *(a_job("plain") for _ in range(number)))
        assert heard.since() == ENQUEUE
        jobs = await claim(backend, queues=["plain"])
        assert (len(jobs), heard.since()) == (number, CLAIM)
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        assert heard.since() == ["count_completed", COMPLETE[number], "leave_completed"]
