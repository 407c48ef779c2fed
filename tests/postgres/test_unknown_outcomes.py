"""A COMMIT whose reply never came: nobody guesses, the locking re-check tells."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.conformance.base import MANY, OUTCOMES, a_job, claim, enqueue, finish, hold_one, state_of
from holdfast.testing.stores import open_store
from holdfast.torture.proxy import Proxy, When

LIMIT = timedelta(seconds=10)
BOTH = pytest.mark.parametrize(("when", "standing"), [("before", Standing.HELD), ("after", Standing.COMPLETED)])


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@BOTH
@pytest.mark.parametrize("many", [False, True])
async def test_a_cut_at_the_commit_that_goes_with_the_completion_is_told_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, when: When, standing: Standing, many: bool
):
    jobs = [await hold_one(backend) for _ in range(2)]
    async with open_store(proxy.url) as far:
        with pytest.raises(OutcomeUnknown):
            async with far.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
                proxy.arm(when)
                if many:
                    await transaction.finish([Finish(job.lease, OUTCOMES["completed"]) for job in jobs])
                else:
                    await transaction.complete(jobs[0].lease, '"paid"')
        assert await far.jobs.verify(jobs[0].lease) is standing
        assert await far.jobs.verify(jobs[1].lease) is (standing if many else Standing.HELD)


@BOTH
async def test_a_cut_at_a_commit_after_the_completion_is_told_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, when: When, standing: Standing
):
    job = await hold_one(backend)
    async with open_store(proxy.url) as far:
        with pytest.raises(OutcomeUnknown):
            async with far.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await far.jobs.progress(job.lease, 1.0, None)  # a verb that joins: the completion goes by itself
                assert await transaction.complete(job.lease, '"paid"') is Verdict.DONE
                proxy.arm(when)
        assert await far.jobs.verify(job.lease) is standing


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_whose_opening_was_cut_is_unavailable_and_can_be_opened_again(
    backend: Backend, proxy: Proxy, when: When
):
    """Opening only looks, or installs what is missing: there is no outcome that somebody would have to ask for."""
    far = open_backend(proxy.url)
    proxy.arm(when)
    with pytest.raises(StoreUnavailable):
        await far.open()
    await far.open()
    await far.schema.check()
    await far.close()


@pytest.mark.new_schema
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_whose_first_installation_was_cut_is_unavailable_and_can_be_opened_again(
    url: str, proxy: Proxy, when: When, monkeypatch
):
    far = open_backend(proxy.url)
    look = PoolRunner.read

    async def look_and_arm(runner, verb):
        found = await look(runner, verb)
        proxy.arm(when)  # from here on the next COMMIT is that of the installation
        return found

    monkeypatch.setattr(PoolRunner, "read", look_and_arm)
    with pytest.raises(StoreUnavailable):
        await far.open()
    monkeypatch.undo()
    await far.open()
    await far.schema.check()
    await far.close()


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


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_enqueue_of_one_job_that_was_cut_is_repeated_with_the_same_id_and_makes_one_job(
    backend: Backend, proxy: Proxy, when: When
):
    job = a_job()
    async with open_store(proxy.url) as far:
        proxy.arm(when, r"insert into [^ ]*job ")
        with pytest.raises(OutcomeUnknown):
            await far.jobs.enqueue([job])
        assert await far.jobs.enqueue([job]) == [when == "before"]
    assert (await backend.jobs.outstanding(["greet"], None)).ready == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_claim_that_was_cut_leaves_the_job_ready_or_under_a_lease_that_expires(
    backend: Backend, proxy: Proxy, when: When
):
    (job_id,) = await enqueue(backend, a_job())
    async with open_store(proxy.url) as far:
        proxy.arm(when, "lanes as materialized")
        with pytest.raises(OutcomeUnknown):
            await claim(far, lease=timedelta(milliseconds=200))
        again = [job.id for job in await claim(far)]
        if when == "after":
            assert again == []
            await asyncio.sleep(0.3)  # the lease that nobody knows of
            assert [rescued.job_id for rescued in await far.jobs.rescue(None, MANY)] == [job_id]
            again = [job.id for job in await claim(far)]
        assert again == [job_id]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_claim_that_was_cut_has_taken_can_be_found_and_given_back(
    backend: Backend, proxy: Proxy, when: When
):
    known = await hold_one(backend)
    (job_id,) = await enqueue(backend, a_job())
    async with open_store(proxy.url) as far:
        proxy.arm(when, "lanes as materialized")
        with pytest.raises(OutcomeUnknown):
            await claim(far)
        leases = await far.jobs.unacknowledged_leases("worker-a", known.fence)
        assert [lease.job_id for lease in leases] == ([job_id] if when == "after" else [])
        await far.jobs.release(leases, started=False)
        (again,) = await claim(far)
    assert (again.id, again.used_attempts, again.lost) == (job_id, 1, 0)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_finish_that_was_cut_is_repeated_under_its_fence_and_written_once(
    backend: Backend, proxy: Proxy, when: When
):
    job = await hold_one(backend)
    async with open_store(proxy.url) as far:
        proxy.arm(when, "insert into [^ ]*completed")
        with pytest.raises(OutcomeUnknown):
            await finish(far, job.lease, OUTCOMES["completed"])
        assert await finish(far, job.lease, OUTCOMES["completed"]) is Verdict.DONE
    assert await state_of(backend, job.id) is JobState.COMPLETED


async def test_a_statement_whose_reply_never_comes_fails_after_the_reply_timeout(backend: Backend, proxy: Proxy):
    """The link is whole as far as TCP can tell: keepalives are answered."""
    job = await hold_one(backend)
    async with open_store(f"{proxy.url}&reply_timeout=0.5") as far:
        await far.jobs.progress(job.lease, 1.0, None)
        proxy.half()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await far.jobs.progress(job.lease, 2.0, None)
        assert 0.4 < time.monotonic() - began < 5
        await far.jobs.progress(job.lease, 3.0, None)


@pytest.mark.parametrize(
    ("blocking", "limit"),
    [(True, LIMIT), (False, LIMIT), (False, timedelta(seconds=0.3))],
    ids=["blocking", "async", "limit below the timeout"],
)
async def test_a_commit_whose_reply_never_comes_is_unknown_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, blocking: bool, limit: timedelta
):
    job = await hold_one(backend)
    async with open_store(f"{proxy.url}&reply_timeout=0.5") as far:

        def handler() -> None:
            with far.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                assert transaction.complete(job.lease, None) is Verdict.DONE
                proxy.half()

        with pytest.raises(OutcomeUnknown):
            if blocking:
                await asyncio.to_thread(handler)
            async with far.transactions.begin(job.lease, limit=limit) as transaction:
                proxy.half()
                await transaction.complete(job.lease, None)
        assert await far.jobs.verify(job.lease) is Standing.COMPLETED


async def test_the_extender_gives_a_silent_line_up_in_time_for_another_try(backend: Backend, proxy: Proxy):
    job = await hold_one(backend)
    async with open_store(proxy.url) as far:
        extender = far.extender()
        assert extender.extend([job.lease], timedelta(seconds=4)).lost == []
        proxy.half()
        began = time.monotonic()
        with pytest.raises(StoreError):
            await asyncio.to_thread(extender.extend, [job.lease], timedelta(seconds=4))
        assert extender.extend([job.lease], timedelta(seconds=4)).lost == []
        assert time.monotonic() - began < 4
        extender.close()
