"""Jobs with parents on PostgreSQL: what they cost, and that parents do not wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from tests.postgres.test_order_keys import Heard

from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import a_job, claim, enqueue, finish, state_of
from holdfast.testing.conformance.parents import after


async def test_a_graph_of_many_jobs_takes_a_bounded_number_of_statements(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(backend, monkeypatch)
    await enqueue(backend, a_job())
    numbers: list[int] = []
    for size in (10, 10_000):
        ids = [new_id() for _ in range(size)]
        jobs = [a_job(job_id=ids[0]), *(after(parent, job_id=child) for parent, child in pairwise(ids))]
        heard.since()
        await enqueue(backend, *jobs)
        numbers.append(len(heard.since()))
    assert max(numbers) < 20
    assert abs(numbers[0] - numbers[1]) <= 3  # many rows are copied


async def test_the_end_of_a_parent_does_not_wait_for_that_of_another(backend: Backend) -> None:
    parents = await enqueue(backend, *(a_job() for _ in range(5)))
    (child,) = await enqueue(backend, after(*parents))
    first, *others = await claim(backend)
    async with backend.transactions.begin(first.lease, limit=timedelta(seconds=20)) as transaction:
        assert await transaction.complete(first.lease, None) is Verdict.DONE
        async with asyncio.timeout(10):
            ends = (asyncio.create_task(finish(backend, job.lease, Completed())) for job in others[:-1])
            assert set(await asyncio.gather(*ends)) == {Verdict.DONE}
    assert await state_of(backend, child) is JobState.BLOCKED
    await finish(backend, others[-1].lease, Completed())
    assert await state_of(backend, child) is JobState.READY
