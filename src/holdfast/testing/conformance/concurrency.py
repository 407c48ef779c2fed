"""Concurrency: under concurrent claims, finishes and rescues each job has one holder and one outcome."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import ClassVar

from holdfast.model.job import JobState, LeasedJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, JobFilter, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    MakeBackend,
    a_job,
    claim,
    enqueue,
    finish,
    hold_one,
    result_of,
    state_of,
)


async def _claim_all(backend: Backend, worker_id: str) -> list[LeasedJob]:
    taken: list[LeasedJob] = []
    while jobs := await claim(backend, 7, worker_id=worker_id):
        taken += jobs
    return taken


class TestManyTasks(Conformance):
    """Many asyncio tasks of one process over one backend."""

    async def test_a_job_is_leased_to_one_worker_at_a_time_under_concurrent_claims(self, backend: Backend) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(200)))
        hauls = await asyncio.gather(*(_claim_all(backend, f"worker-{n}") for n in range(8)))
        assert Counter(job.id for haul in hauls for job in haul) == Counter(ids)
        owners: dict[int, set[str]] = {}
        for number, haul in enumerate(hauls):
            for job in haul:
                owners.setdefault(job.fence, set()).add(f"worker-{number}")
        assert all(len(workers) == 1 for workers in owners.values())

    async def test_concurrent_finishes_under_one_fence_end_the_job_once(self, backend: Backend) -> None:
        job = await hold_one(backend)
        verdicts = await asyncio.gather(*(finish(backend, job.lease, OUTCOMES["failed"]) for _ in range(8)))
        assert set(verdicts) == {Verdict.DONE}
        assert len((await backend.insight.job(job.id)).attempts) == 1

    async def test_concurrent_repeats_of_an_enqueue_make_one_job(self, backend: Backend) -> None:
        job = a_job()
        answers = await asyncio.gather(*(backend.jobs.enqueue([job]) for _ in range(8)))
        assert sorted(answer for (answer,) in answers) == [False] * 7 + [True]

    async def test_either_the_holder_or_the_rescuer_wins_never_both(self, backend: Backend, clock: ManualClock) -> None:
        jobs = [await hold_one(backend) for _ in range(10)]
        clock.advance(LEASE * 2)
        finishes = [finish(backend, job.lease, Completed()) for job in jobs]
        results = await asyncio.gather(*finishes, backend.jobs.rescue(None, MANY), backend.jobs.rescue(None, MANY))
        rescued = Counter(each.job_id for haul in results[10:] if isinstance(haul, list) for each in haul)
        for job, verdict in zip(jobs, results[:10], strict=True):
            assert rescued[job.id] == (1 if verdict is Verdict.LOST else 0)
            expected = JobState.READY if verdict is Verdict.LOST else JobState.COMPLETED
            assert await state_of(backend, job.id) is expected


class TestManyBackends(Conformance):
    """Several backends on one store, one per process."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_each_job_goes_to_one_backend(self, backend: Backend, make_backend: MakeBackend) -> None:
        backends = [backend, await make_backend(), await make_backend()]
        ids = await enqueue(backend, *(a_job() for _ in range(150)))
        hauls = await asyncio.gather(*(_claim_all(each, f"worker-{n}") for n, each in enumerate(backends)))
        assert Counter(job.id for haul in hauls for job in haul) == Counter(ids)
        fences = Counter(fence for haul in hauls for fence in {job.fence for job in haul})
        assert set(fences.values()) == {1}

    async def test_what_one_backend_writes_the_others_see(self, backend: Backend, make_backend: MakeBackend) -> None:
        other = await make_backend()
        job = await hold_one(backend)
        assert await state_of(other, job.id) is JobState.RUNNING
        assert await finish(other, job.lease, Completed('"by hand"')) is Verdict.DONE
        assert await result_of(backend, job.id) == '"by hand"'

    async def test_a_fence_overtaken_through_another_backend_is_stale(
        self, backend: Backend, make_backend: MakeBackend, clock: ManualClock
    ) -> None:
        other = await make_backend()
        job = await hold_one(backend)
        clock.advance(LEASE * 2)
        assert len(await other.jobs.rescue(None, MANY)) == 1
        (again,) = await claim(other, worker_id="worker-b")
        assert again.fence > job.fence
        assert await finish(backend, job.lease, Completed()) is Verdict.LOST
        assert await finish(other, again.lease, Completed()) is Verdict.DONE

    async def test_workers_that_drain_together_complete_each_job_once(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(120)))

        async def drain(store: Backend, worker_id: str) -> list[str]:
            done: list[str] = []
            while jobs := await claim(store, 5, worker_id=worker_id, lease=timedelta(hours=1)):
                verdicts = await store.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
                assert verdicts == [Verdict.DONE] * len(jobs)
                done += [job.id for job in jobs]
            return done

        hauls = await asyncio.gather(drain(backend, "worker-a"), drain(await make_backend(), "worker-b"))
        assert Counter(job_id for haul in hauls for job_id in haul) == Counter(ids)
        completed = await backend.insight.jobs(JobFilter(state=JobState.COMPLETED, limit=MANY))
        assert {view.id for view in completed.jobs} == set(ids)
