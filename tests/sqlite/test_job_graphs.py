"""Jobs with parents on SQLite: what they cost, and that other jobs pay nothing for them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.sqlite.test_order_keys import Heard

from holdfast.backends.sqlite import connection as connecting
from holdfast.backends.sqlite import execute as executing
from holdfast.model.ids import new_id
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job, claim_one, enqueue, finish
from holdfast.testing.conformance.parents import after
from holdfast.testing.stores import open_store


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(connecting, "STATEMENTS", heard)
    monkeypatch.setattr(executing, "STATEMENTS", heard)
    return heard


async def _plain_job(backend: Backend, heard: Heard) -> list[str]:
    """Enqueue, claim and complete a job without parents; return the names of the statements."""
    heard.since()
    await enqueue(backend, a_job())
    await finish(backend, (await claim_one(backend)).lease, Completed())
    return heard.since()


async def test_a_job_without_parents_costs_no_statement_more(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        await _plain_job(backend, heard)
        alone = await _plain_job(backend, heard)
        assert alone[:5] == ["take_seqs", "find_lane", "insert_job", "new_to_ready", "count_events"]
        (parent,) = await enqueue(backend, a_job(delay=timedelta(hours=1)))
        await enqueue(backend, after(parent), after(parent, order_key="x"))
        assert await _plain_job(backend, heard) == alone


async def test_a_graph_of_many_jobs_takes_as_many_statements_as_one_of_few(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        await enqueue(backend, a_job())
        numbers: list[int] = []
        for size in (10, 10_000):
            ids = [new_id() for _ in range(size)]
            jobs = [a_job(job_id=ids[0]), *(after(parent, job_id=child) for parent, child in pairwise(ids))]
            heard.since()
            await enqueue(backend, *jobs)
            numbers.append(len(heard.since()))
        assert numbers[0] == numbers[1] < 20
