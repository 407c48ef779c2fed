"""Claim: order, limits, queues, tasks, and never twice under a live lease."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    OUTCOMES,
    Conformance,
    a_job,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    lease_of,
    state_of,
)


class TestClaimSelection(Conformance):
    """`JobStore.claim`, sentences 1 and 4."""

    async def test_it_takes_at_most_limit_jobs(self, backend: Backend) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(5)))
        assert [job.id for job in await claim(backend, 2)] == ids[:2]
        assert [job.id for job in await claim(backend, 2)] == ids[2:4]
        assert [job.id for job in await claim(backend, 2)] == ids[4:]
        assert await claim(backend, 2) == []

    async def test_it_takes_jobs_of_the_named_queues_only(self, backend: Backend) -> None:
        (mail,) = await enqueue(backend, a_job("mail"))
        (sale,) = await enqueue(backend, a_job("sale"))
        (file,) = await enqueue(backend, a_job("file"))
        assert [job.id for job in await claim(backend, queues=["sale", "mail"])] == [mail, sale]
        assert await claim(backend, queues=[]) == []
        assert [job.id for job in await claim(backend, queues=None)] == [file]

    async def test_it_takes_jobs_of_the_named_tasks_only(self, backend: Backend) -> None:
        (unknown,) = await enqueue(backend, a_job(task="unknown"))
        (known,) = await enqueue(backend, a_job(task="greet"))
        assert [job.id for job in await claim(backend, tasks=["greet", "other"])] == [known]
        assert await state_of(backend, unknown) is JobState.READY

    async def test_it_takes_none_of_a_paused_queue(self, backend: Backend) -> None:
        (paused,) = await enqueue(backend, a_job("mail"))
        (other,) = await enqueue(backend, a_job("sale"))
        await backend.queues.pause("mail")
        assert [job.id for job in await claim(backend)] == [other]
        await backend.queues.resume("mail")
        assert [job.id for job in await claim(backend)] == [paused]

    async def test_it_takes_jobs_in_order_of_turn_then_seq(self, backend: Backend, clock: ManualClock) -> None:
        (first,) = await enqueue(backend, a_job())
        (second,) = await enqueue(backend, a_job())
        clock.advance(59)
        (ahead,) = await enqueue(backend, a_job(priority=1))  # a head start of one minute puts it one second ahead
        clock.advance(2)
        (behind,) = await enqueue(backend, a_job(priority=1))
        (last,) = await enqueue(backend, a_job(priority=-1))
        assert [job.id for job in await claim(backend)] == [ahead, first, second, behind, last]

    async def test_it_keeps_the_order_across_queues_and_tasks(self, backend: Backend, clock: ManualClock) -> None:
        kinds = [("mail", "greet"), ("sale", "greet"), ("mail", "charge"), ("sale", "charge")]
        ids: list[str] = []
        for turn in range(3):
            for queue, task in kinds[turn:] + kinds[:turn]:
                ids += await enqueue(backend, a_job(queue, task=task))
            clock.advance(1)
        taken: list[str] = []
        while jobs := await claim(backend, 5, tasks=["greet", "charge"]):
            taken += [job.id for job in jobs]
        assert taken == ids

    async def test_a_job_that_was_delayed_has_its_turn_from_when_it_was_due(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (delayed,) = await enqueue(backend, a_job(delay=timedelta(seconds=10)))
        clock.advance(5)
        (before,) = await enqueue(backend, a_job())
        clock.advance(10)
        (after,) = await enqueue(backend, a_job())
        await backend.jobs.promote(10)
        assert [job.id for job in await claim(backend)] == [before, delayed, after]

    async def test_it_stops_early_when_the_payloads_exceed_max_bytes_but_takes_at_least_one(
        self, backend: Backend
    ) -> None:
        ids = await enqueue(backend, *(a_job(payload=f'"{"x" * 998}"') for _ in range(6)))
        jobs = await _claim_bytes(backend, 2500)
        assert jobs == ids[: len(jobs)]
        assert 2 <= len(jobs) <= 3
        assert await _claim_bytes(backend, 1) == [ids[len(jobs)]]
        assert await _claim_bytes(backend, 1_000_000) == ids[len(jobs) + 1 :]


async def _claim_bytes(backend: Backend, max_bytes: int) -> list[str]:
    request = ClaimRequest(worker_id="worker-a", tasks=("greet",), limit=100, lease=LEASE, max_bytes=max_bytes)
    return [job.id for job in (await backend.jobs.claim(request)).jobs]


class TestClaimLeases(Conformance):
    """`JobStore.claim`, sentences 2 and 3."""

    async def test_it_raises_attempt_of_each_and_gives_all_of_them_one_new_fence_larger_than_any_before(
        self, backend: Backend
    ) -> None:
        await enqueue(backend, *(a_job() for _ in range(4)))
        first = await claim(backend, 3)
        second = await claim(backend, 3)
        assert [job.attempt for job in first + second] == [1] * 4
        assert len({job.fence for job in first}) == 1
        assert second[0].fence > first[0].fence
        await backend.jobs.release([job.lease for job in first], started=True)
        third = await claim(backend, 3)
        assert [job.attempt for job in third] == [2] * 3
        assert third[0].fence > second[0].fence

    async def test_fences_grow_even_when_the_jobs_before_are_gone(self, backend: Backend) -> None:
        fences: list[int] = []
        for _ in range(5):
            job = await hold_one(backend)
            fences.append(job.fence)
            await finish(backend, job.lease, OUTCOMES["completed"])
        assert fences == sorted(set(fences))

    async def test_a_job_is_leased_to_one_worker_at_a_time(self, backend: Backend) -> None:
        job = await hold_one(backend)
        assert await claim(backend, worker_id="worker-b") == []
        assert await backend.jobs.release([job.lease], started=False) == [Verdict.DONE]
        assert (await claim_one(backend, worker_id="worker-b")).id == job.id

    async def test_an_expired_lease_is_not_claimed_before_it_is_rescued(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await hold_one(backend)
        clock.advance(LEASE * 2)
        assert await claim(backend, worker_id="worker-b") == []

    async def test_a_lease_names_its_worker_and_its_remaining_time(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend, worker_id="worker-c", lease=timedelta(seconds=12))
        clock.advance(2)
        lease = await lease_of(backend, job.id)
        assert (lease.worker_id, lease.fence, lease.seq) == ("worker-c", job.fence, job.seq)
        assert lease.expires_in == timedelta(seconds=10)
        assert lease.started_at == clock.now - timedelta(seconds=2)

    async def test_a_claim_that_finds_nothing_changes_nothing(self, backend: Backend) -> None:
        (delayed,) = await enqueue(backend, a_job(delay=timedelta(seconds=5)))
        assert await claim(backend) == []
        assert (await backend.insight.job(delayed)).job.attempt == 0
