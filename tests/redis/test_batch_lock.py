"""The lock of a large enqueue with conditions is kept while the call reads, and not taken again when it was lost."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.redis.ending import Ends, acting_before, ending_before
from tests.redis.whole import check_whole

from holdfast.backends.redis import jobs as enqueuing
from holdfast.backends.redis import staging, steps
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.model.conditions import Conditions, Unique
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import a_job, claim
from holdfast.testing.stores import open_store

LATER = timedelta(seconds=3)  # a lock that is not kept up has expired


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage few jobs, after many reads."""
    monkeypatch.setattr(enqueuing, "_IN_ONE", 4)


def unique(key: str) -> NewJob:
    return msgspec.structs.replace(a_job(), conditions=Conditions(unique=Unique(key)))


@pytest.mark.parametrize(("each", "slow_by"), [(0, 0.9), (200_000, 1.8)])
async def test_a_call_whose_reads_take_longer_than_the_lock_lasts_keeps_it(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, url: str, each: int, slow_by: float
):
    await backend.jobs.enqueue([a_job()])  # the lane is known
    jobs = [unique(f"k{number}") for number in range(9)]
    call, calls = AsyncWire.call, 0

    async def slow(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        nonlocal calls
        calls += 1
        clock.advance(slow_by)
        return await call(wire, asked, store)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "AT_ONCE", 2)
        patch.setattr(staging, "_FOR_EACH", each)
        patch.setattr(AsyncWire, "call", slow)
        assert await backend.jobs.enqueue(jobs) == [True] * 9
    assert calls < 100, "it has not begun again and again"
    check_whole(url)


async def test_a_call_that_has_lost_the_lock_while_it_read_begins_again(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    for number in itertools.count(2):
        async with open_store(url, clock=clock) as backend, open_store(url, clock=clock) as rival:
            await backend.jobs.enqueue([a_job()])
            jobs, others = [unique(f"{number} {at}") for at in range(9)], [unique(f"{number} 3")]
            given: list[Any] = []

            async def act(rival: Any = rival, others: list[NewJob] = others, given: list[Any] = given) -> None:
                clock.advance(LATER)
                given += await rival.jobs.enqueue(others)

            with monkeypatch.context() as patch:
                patch.setattr(steps, "AT_ONCE", 2)
                acting_before(patch, number, act)
                answers = await backend.jobs.enqueue(jobs)
            if not given:
                break
            assert (answers[3], given) in ((True, [jobs[3].id]), (others[0].id, [True]))
        check_whole(url)
    assert number > 15


@pytest.mark.parametrize("number", [1, 2])
async def test_a_deletion_that_meets_a_batch_on_its_way_names_all_that_it_has_deleted(
    backend: RedisBackend, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, number: int
):
    await backend.jobs.enqueue([a_job() for _ in range(130)])
    jobs = await claim(backend)
    await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])

    async def stage() -> None:
        """The process ends when its batch is enqueued and not yet inserted: the deletion resumes it."""
        async with open_store(url, clock=clock) as rival:
            with monkeypatch.context() as patch:
                ending_before(patch, 1, "apply_batch")
                with pytest.raises(Ends):
                    await rival.jobs.enqueue([unique(f"k{each}") for each in range(9)])

    with monkeypatch.context() as patch:
        acting_before(patch, number, stage, "delete")
        deleted = await backend.jobs.delete([job.id for job in jobs], [JobState.COMPLETED], timedelta(0))
    assert deleted == {job.id: None for job in jobs}
    assert await backend.insight.states([job.id for job in jobs]) == []
    check_whole(url)
