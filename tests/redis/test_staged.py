"""Large enqueues: all or none, in pieces that each take the server a few milliseconds."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.redis.ending import Ends, acting_before, ending_before
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.scripts import STAGE
from holdfast.backends.redis.steps import ScriptCall, size_of
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.job import NewJob
from holdfast.store.values import ClaimRequest
from holdfast.testing.conformance.base import LEASE, a_job, claim

SIZE = 1300


async def test_the_answers_distinguish_new_ids_from_known_ones(backend: RedisBackend, url: str):
    jobs = [a_job() for _ in range(SIZE)]
    assert await backend.jobs.enqueue([jobs[700], jobs[3]]) == [True, True]
    answers = await backend.jobs.enqueue(jobs)
    assert [number for number, answer in enumerate(answers) if not answer] == [3, 700]
    assert await backend.jobs.enqueue(jobs) == [False] * SIZE
    assert {job.id for _ in "ab" for job in await claim(backend)} == {job.id for job in jobs}
    check_whole(url)


@pytest.mark.parametrize("place", [(3, "apply_batch"), (1, "read")])
async def test_answers_that_the_server_has_evicted_are_an_unknown_outcome(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, url: str, place: tuple[int, str]
):
    jobs = [a_job() for _ in range(SIZE)]
    assert await backend.jobs.enqueue(jobs[:2]) == [True, True]

    async def evict() -> None:
        client = connection_of(url)
        assert client.delete(*client.keys(f"{backend._parts.here.server.location.prefix}v*")) == 1

    with monkeypatch.context() as patch:
        acting_before(patch, place[0], evict, place[1])
        with pytest.raises(OutcomeUnknown, match="same ids"):
            await backend.jobs.enqueue(jobs)
    assert await backend.jobs.enqueue(jobs) == [False] * SIZE
    check_whole(url)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_process_that_ends_before_all_jobs_are_staged_has_enqueued_none(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, number: int
):
    jobs = [a_job() for _ in range(SIZE)]
    with monkeypatch.context() as patch:
        ending_before(patch, number, "stage")
        with pytest.raises(Ends):
            await backend.jobs.enqueue(jobs)
    await backend.jobs.promote(10)
    assert await claim(backend) == []
    assert await backend.jobs.enqueue(jobs) == [True] * SIZE


@pytest.mark.parametrize("number", [1, 3])
async def test_a_process_that_ends_after_that_has_enqueued_all(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, url: str, number: int
):
    jobs = [a_job() for _ in range(SIZE)]
    with monkeypatch.context() as patch:
        ending_before(patch, number, "apply_batch")
        with pytest.raises(Ends):
            await backend.jobs.enqueue(jobs)
    assert not (await backend.jobs.outstanding(["greet"], None)).is_empty
    await backend.jobs.promote(10)  # a worker goes on with it
    assert [job.id for _ in "ab" for job in await claim(backend)] == [job.id for job in jobs]
    check_whole(url)


@pytest.mark.parametrize(("size", "payload"), [(SIZE, 10), (60, 100_000)])
@pytest.mark.parametrize("conditions", ["none", "unique", "replaced"])
async def test_no_script_inserts_more_than_a_few_hundred_jobs_or_two_megabytes(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, size: int, payload: int, conditions: str
):
    sizes: list[tuple[int, int]] = []
    call = AsyncWire.call

    async def measured(wire: AsyncWire, asked: ScriptCall, store: bytes) -> object:
        if asked.script.writes:
            sizes.append((len(asked.words), size_of(asked.words)))
        return await call(wire, asked, store)

    def jobs() -> list[NewJob]:
        made = [a_job(payload=f'"{"x" * payload}"') for _ in range(size)]
        if conditions == "none":
            return made
        keys = [Unique(str(number), UniqueScope.UNFINISHED, OnConflict.REPLACE) for number in range(size)]
        return [structs.replace(job, conditions=Conditions(unique=key)) for job, key in zip(made, keys, strict=True)]

    if conditions == "replaced":
        await backend.jobs.enqueue(jobs())
    monkeypatch.setattr(AsyncWire, "call", measured)
    await backend.jobs.enqueue(jobs())
    words, total = zip(*sizes, strict=True)
    assert max(words) <= (510 if conditions == "none" else 4000)
    assert max(total) <= 2_000_000
    assert sum(total) >= size * payload


async def test_a_claim_of_more_jobs_than_one_script_leases_says_that_there_are_more(backend: RedisBackend):
    await backend.jobs.enqueue([a_job() for _ in range(SIZE)])
    request = ClaimRequest(worker_id="worker-a", tasks=("greet",), limit=SIZE, lease=LEASE)
    first, second = await backend.jobs.claim(request), await backend.jobs.claim(request)
    assert (len(first.jobs), first.is_cut, len(second.jobs), second.is_cut) == (1000, True, SIZE - 1000, False)


async def test_an_error_while_staging_says_that_nothing_was_written(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
):
    call = AsyncWire.call
    staged = 0

    async def failing(wire: AsyncWire, asked: ScriptCall, store: bytes) -> object:
        nonlocal staged
        staged += asked.script is STAGE
        if staged == 2:
            raise StoreUnavailable("its memory is full")
        return await call(wire, asked, store)

    monkeypatch.setattr(AsyncWire, "call", failing)
    with pytest.raises(StoreUnavailable):
        await backend.jobs.enqueue([a_job() for _ in range(SIZE)])
