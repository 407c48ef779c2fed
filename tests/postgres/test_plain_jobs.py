"""A job that uses no feature runs the same statements on PostgreSQL whatever else is in the store: these."""

from __future__ import annotations

import pytest
from tests.every_feature import use_every_feature
from tests.postgres.test_order_keys import Heard

from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import a_job, claim, enqueue

ENQUEUE = {1: ["enqueue_one"], 20: ["enqueue"], 400: ["reserve_seqs", "copy_jobs", "copy_ready", "count_events"]}


@pytest.mark.parametrize("number", ENQUEUE)
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside_every_feature"])
async def test_a_plain_job_is_enqueued_claimed_and_completed_by_these_statements(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, number: int, *, is_alone: bool
):
    if not is_alone:
        await use_every_feature(backend)
    await enqueue(backend, a_job("plain"))
    await claim(backend, queues=["plain"])
    heard = Heard(backend, monkeypatch)

    await enqueue(backend, *(a_job("plain") for _ in range(number)))
    assert heard.since() == ENQUEUE[number]
    jobs = await claim(backend, queues=["plain"])
    assert (len(jobs), heard.since()) == (number, ["claim"])
    await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
    assert heard.since() == ["complete"]
