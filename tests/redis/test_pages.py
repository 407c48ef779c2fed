"""Pages of jobs; the ledger of completed ones is a list, from which a job in the middle cannot be taken."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.redis.whole import check_whole

from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, JobFilter, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue

NOW = timedelta(0)


async def _completed(backend: RedisBackend, clock: ManualClock, *steps: float) -> list[str]:
    """Complete a job, then advance the clock, for each step; return their ids."""
    ids: list[str] = []
    for step in steps:
        ids += await enqueue(backend, a_job())
        (job,) = await claim(backend)
        await backend.jobs.finish([Finish(job.lease, Completed())])
        clock.advance(step)
    return ids


async def _listed(backend: RedisBackend, limit: int) -> list[str]:
    """Return the completed jobs, read in pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await backend.insight.jobs(JobFilter(JobState.COMPLETED, cursor=cursor, limit=limit))
        found += [job.id for job in page.jobs]
        if page.cursor is None:
            return found
        cursor = page.cursor


def _scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the scripts that are called from now on."""
    names: list[str] = []
    call = AsyncWire.call

    async def noted(wire: AsyncWire, asked: ScriptCall, store: bytes) -> object:
        names.append(asked.script.name)
        return await call(wire, asked, store)

    monkeypatch.setattr(AsyncWire, "call", noted)
    return names


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
async def test_a_page_costs_the_same_however_many_jobs_are_due_at_the_same_time(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, delay: timedelta | None
):
    ids = await enqueue(backend, *(a_job(delay=delay) for _ in range(2000)))  # staged: all have the same turn
    state = JobState.READY if delay is None else JobState.SCHEDULED
    first = await backend.insight.jobs(JobFilter(state, limit=1999))
    names = _scripts(monkeypatch)
    last = await backend.insight.jobs(JobFilter(state, limit=10, cursor=first.cursor))
    assert [job.id for job in (*first.jobs, *last.jobs)] == ids
    assert len(names) <= 4


async def test_no_script_looks_at_more_than_some_jobs_of_a_ledger_that_are_gone(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    (first,) = await _completed(backend, clock, 1)
    many = await enqueue(backend, *(a_job() for _ in range(6000)))
    for _ in range(60):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in await claim(backend, 100)])
        clock.advance(1)
    for start in range(0, len(many), 1000):
        await _delete(backend, *many[start : start + 1000])
    names = _scripts(monkeypatch)
    assert await _listed(backend, 5) == [first]
    assert names.count("ledger_page") in range(4, 10)


async def test_counts_of_many_minutes_are_read_in_several_scripts(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(250):
        await enqueue(backend, a_job())
        clock.advance(60)
    names = _scripts(monkeypatch)
    found = await backend.insight.counts(timedelta(days=30), by_minute=True)
    assert [count.enqueued for count in found] == [1] * 250
    assert len(names) >= 4


async def _delete(backend: RedisBackend, *ids: str) -> None:
    assert await backend.jobs.delete(ids, {JobState.COMPLETED}, NOW) == dict.fromkeys(ids)


async def test_pages_leave_out_deleted_jobs_and_have_their_full_size(
    backend: RedisBackend, clock: ManualClock, url: str
):
    ids = await _completed(backend, clock, *[1] * 9)
    await _delete(backend, ids[3], ids[6])
    check_whole(url)
    left = [each for each in reversed(ids) if each not in {ids[3], ids[6]}]
    page = await backend.insight.jobs(JobFilter(JobState.COMPLETED, limit=4))
    assert [job.id for job in page.jobs] == left[:4]
    assert await _listed(backend, 2) == left


async def test_a_page_continues_after_a_job_that_was_deleted_since(backend: RedisBackend, clock: ManualClock):
    ids = await _completed(backend, clock, *[1] * 5)
    page = await backend.insight.jobs(JobFilter(JobState.COMPLETED, limit=2))
    await _delete(backend, ids[3])
    rest = await backend.insight.jobs(JobFilter(JobState.COMPLETED, limit=9, cursor=page.cursor))
    assert [job.id for job in rest.jobs] == [ids[2], ids[1], ids[0]]


async def test_jobs_that_ended_at_the_same_time_are_paged_by_seq(backend: RedisBackend, clock: ManualClock):
    first, second, third = await enqueue(backend, *(a_job() for _ in range(3)))
    one, two, three = await claim(backend)
    await backend.jobs.finish([Finish(two.lease, Completed())])
    await backend.jobs.finish([Finish(three.lease, Completed()), Finish(one.lease, Completed())])
    later = await _completed(backend, clock, 0)
    assert await _listed(backend, 1) == [*later, third, second, first]


async def test_a_clock_that_steps_back_leaves_the_ledger_in_order(backend: RedisBackend, clock: ManualClock, url: str):
    ids = await _completed(backend, clock, 5, -60, 1, 100, 1)
    check_whole(url)
    assert await _listed(backend, 2) == [ids[4], ids[3], ids[2], ids[1], ids[0]]


async def test_pruning_goes_on_behind_jobs_that_were_deleted(backend: RedisBackend, clock: ManualClock, url: str):
    ids = await _completed(backend, clock, *[1] * 8)
    await _delete(backend, ids[1], ids[2], ids[5])
    assert await backend.jobs.prune(Retention(completed=timedelta(seconds=2)), MANY) == 4
    check_whole(url)
    assert await _listed(backend, 3) == [ids[7]]


async def test_an_id_that_is_used_again_is_listed_once(backend: RedisBackend, clock: ManualClock, url: str):
    first, second = await _completed(backend, clock, 0, 0)
    await _delete(backend, second)
    await enqueue(backend, a_job(job_id=second))
    (job,) = await claim(backend)
    await backend.jobs.finish([Finish(job.lease, Completed())])
    check_whole(url)
    assert await _listed(backend, 2) == [second, first]
