"""Through a transaction pooler: sessions change hands with every transaction, and everything works all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError

from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, JobFilter, Verdict
from holdfast.testing.conformance.base import LEASE, a_job, claim, hold_one, in_extender, result_of
from holdfast.testing.stores import open_store


@pytest.fixture
def pooler(url: str, tmp_path: Path) -> Iterator[str]:
    try:
        with pooled(url, tmp_path) as pooled_url:
            yield pooled_url
    except NoServerError as error:
        give_up("PgBouncer", str(error))


async def _drain(backend: Backend, worker_id: str) -> int:
    number = 0
    while jobs := await claim(backend, 20, worker_id=worker_id):
        verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        assert verdicts == [Verdict.DONE] * len(jobs)
        number += len(jobs)
    return number


async def test_many_workers_over_few_sessions_complete_each_job_once(pooler: str):
    async with open_store(pooler) as first, open_store(pooler) as second, open_store(pooler) as third:
        await first.jobs.enqueue([a_job() for _ in range(600)])
        await asyncio.gather(*(second.jobs.enqueue([a_job()]) for _ in range(100)))
        hauls = await asyncio.gather(*(_drain(each, f"w{n}") for n, each in enumerate((first, second, third) * 3)))
        assert sum(hauls) == 700
        page = await first.insight.jobs(JobFilter(state=JobState.COMPLETED, limit=1000))
        assert len(page.jobs) == 700


async def test_transactions_and_extensions_work_through_it(pooler: str):
    async with open_store(pooler) as backend:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            assert (await in_extender(backend, lambda extender: extender.extend([job.lease], LEASE))).lost == []
            assert await transaction.complete(job.lease, '"paid"') is Verdict.DONE
        assert await result_of(backend, job.id) == '"paid"'


async def test_prepared_statements_are_not_used_there_and_are_used_where_the_session_is_our_own(pooler: str, url: str):
    for address, prepares in ((pooler, False), (url, True)):
        async with open_store(address) as backend:
            job = await hold_one(backend)
            async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
                assert (transaction.connection.prepare_threshold is not None) is prepares
