"""Enqueues that are asked for at once share a round trip; a lone one does not wait, none pays for another's fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.backends.postgres.gathering import Gathering
from holdfast.errors import StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job


async def test_those_that_come_while_one_is_on_its_way_go_together():
    sizes: list[int] = []

    async def insert(jobs: Sequence[NewJob]) -> list[bool]:
        sizes.append(len(jobs))
        await asyncio.sleep(0)
        return [True] * len(jobs)

    gathering = Gathering(insert)
    answers = await asyncio.gather(*(gathering.enqueue([a_job(), a_job()]) for _ in range(50)))
    assert answers == [[True, True]] * 50
    assert sizes == [2, 98]


async def test_a_store_that_fails_fails_for_all_who_went_together():
    async def insert(jobs: Sequence[NewJob]) -> list[bool]:
        await asyncio.sleep(0)
        raise StoreUnavailable("gone")

    gathering = Gathering(insert)
    answers = await asyncio.gather(*(gathering.enqueue([a_job()]) for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 5


async def test_a_job_that_cannot_be_written_fails_alone(backend: Backend):
    jobs = [a_job() for _ in range(20)]
    jobs[7] = a_job(payload="\ud800")
    answers = await asyncio.gather(*(backend.jobs.enqueue([job]) for job in jobs), return_exceptions=True)
    assert [answer == [True] for answer in answers] == [number != 7 for number in range(20)]
    assert (await backend.jobs.outstanding(["greet"], None)).ready == 19


async def test_a_caller_that_gives_up_stops_nobody(backend: Backend):
    calls = [asyncio.create_task(backend.jobs.enqueue([a_job()])) for _ in range(10)]
    await asyncio.sleep(0)
    for call in calls[:5]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[5:] == [[True]] * 5
    assert await backend.jobs.enqueue([a_job()]) == [True]


@pytest.mark.parametrize("number", [1, 3, 400])
async def test_an_enqueue_of_any_size_tells_new_jobs_from_known_ones(backend: Backend, number: int):
    jobs = [a_job() for _ in range(number)]
    assert await backend.jobs.enqueue(jobs) == [True] * number
    more = [a_job() for _ in range(number)]
    assert await backend.jobs.enqueue([*more, *jobs]) == [True] * number + [False] * number
