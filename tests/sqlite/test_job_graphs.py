"""Jobs with parents on SQLite: what they cost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.sqlite.conftest import Heard

from holdfast.model.ids import new_id
from holdfast.testing.conformance.base import a_job, enqueue
from holdfast.testing.conformance.parents import after
from holdfast.testing.stores import open_store


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
