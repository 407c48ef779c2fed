"""A COMMIT whose reply never came: nobody guesses, the locking re-check tells."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.servers.proxy import Proxy, When

from holdfast.errors import OutcomeUnknown
from holdfast.store.backend import Backend
from holdfast.store.values import Standing, Verdict
from holdfast.testing.conformance.base import a_job, hold_one
from holdfast.testing.stores import open_store

LIMIT = timedelta(seconds=10)
BOTH = pytest.mark.parametrize(("when", "standing"), [("before", Standing.HELD), ("after", Standing.COMPLETED)])


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@BOTH
async def test_a_cut_at_the_commit_of_a_handlers_transaction_is_told_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, when: When, standing: Standing
):
    job = await hold_one(backend)
    async with open_store(proxy.url) as far:
        with pytest.raises(OutcomeUnknown):
            async with far.transactions.begin(job.lease, limit=LIMIT) as transaction:
                assert await transaction.complete(job.lease, '"paid"') is Verdict.DONE
                proxy.arm(when)
        assert await far.jobs.verify(job.lease) is standing


@BOTH
async def test_a_cut_at_the_commit_of_a_blocking_transaction_is_told_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, when: When, standing: Standing
):
    job = await hold_one(backend)
    async with open_store(proxy.url) as far:

        def handler() -> None:
            with far.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                assert transaction.complete(job.lease, '"paid"') is Verdict.DONE
                proxy.arm(when)

        with pytest.raises(OutcomeUnknown):
            await asyncio.to_thread(handler)
        assert await far.jobs.verify(job.lease) is standing


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_bulk_enqueue_whose_commit_was_cut_is_repeated_with_the_same_ids_and_makes_each_job_once(
    backend: Backend, proxy: Proxy, when: When
):
    jobs = [a_job() for _ in range(400)]
    async with open_store(proxy.url) as far:
        proxy.arm(when)
        with pytest.raises(OutcomeUnknown):
            await far.jobs.enqueue(jobs)
        assert await far.jobs.enqueue(jobs) == [when == "before"] * 400
    assert (await backend.jobs.outstanding(["greet"], None)).ready == 400
