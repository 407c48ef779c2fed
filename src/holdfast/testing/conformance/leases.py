"""Leases: extend, expire, release, progress, verify."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

from holdfast.model.budget import MAX_INTERRUPTED
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.values import Standing, Verdict, WorkerHeartbeat
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    in_extender,
    lease_of,
    make_stale,
    snapshot,
    state_of,
)

SECOND = timedelta(seconds=1)


class TestRelease(Conformance):
    """`JobStore.release`."""

    async def test_released_jobs_are_ready_again_at_their_old_turn(self, backend: Backend, clock: ManualClock) -> None:
        first = await hold_one(backend)
        clock.advance(1)
        (second,) = await enqueue(backend, a_job())
        assert await backend.jobs.release([first.lease], started=False) == [Verdict.DONE]
        again = await claim(backend)
        assert [job.id for job in again] == [first.id, second]
        assert again[0].turn == first.turn

    async def test_of_several_fences_of_one_job_in_a_call_only_the_held_one_releases_it(self, backend: Backend) -> None:
        stale = await hold_one(backend)
        assert await backend.jobs.release([stale.lease], started=False) == [Verdict.DONE]
        held = await claim_one(backend)
        leases = [stale.lease, stale.lease, held.lease]
        assert await backend.jobs.release(leases, started=False) == [Verdict.LOST, Verdict.LOST, Verdict.DONE]
        assert (await claim_one(backend)).id == held.id

    async def test_if_the_handler_never_began_the_attempt_is_excused_without_bound(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=1))
        for attempt in range(1, MAX_INTERRUPTED + 5):
            job = await claim_one(backend)
            assert (job.attempt, job.used_attempts, job.interrupted) == (attempt, 1, 0)
            assert await backend.jobs.release([job.lease], started=False) == [Verdict.DONE]
        assert await state_of(backend, job_id) is JobState.READY

    async def test_if_the_handler_had_begun_after_interruption_decides_and_a_record_is_left(
        self, backend: Backend
    ) -> None:
        await enqueue(backend, a_job(max_attempts=2))
        for interrupted in range(MAX_INTERRUPTED):
            job = await claim_one(backend)
            assert (job.used_attempts, job.interrupted) == (1, interrupted)
            assert await backend.jobs.release([job.lease], started=True) == [Verdict.DONE]
        job = await claim_one(backend)
        assert await backend.jobs.release([job.lease], started=True) == [Verdict.DONE]
        job = await claim_one(backend)  # the bound is reached: from now on an interruption costs an attempt
        assert job.used_attempts == 2
        assert await backend.jobs.release([job.lease], started=True) == [Verdict.DONE]
        details = await backend.insight.job(job.id)
        assert details.job.state is JobState.FAILED
        assert details.job.reason is not None
        assert "interrupted" in details.job.reason
        assert {attempt.outcome for attempt in details.attempts} == {"released"}
        assert details.attempts[-1].attempt == job.attempt

    async def test_a_stale_fence_changes_nothing_and_is_answered_lost_by_release(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        stale = await make_stale(backend, clock)
        live = await hold_one(backend)
        before = await snapshot(backend, stale.id)
        verdicts = await backend.jobs.release([stale.lease, live.lease], started=True)
        assert verdicts == [Verdict.LOST, Verdict.DONE]
        assert await snapshot(backend, stale.id) == before
        assert await state_of(backend, live.id) is JobState.READY


class TestReplyLost(Conformance):
    """`JobStore.unacknowledged_leases`."""

    async def test_it_lists_a_workers_leases_under_larger_fences_than_it_knows(self, backend: Backend) -> None:
        known = await hold_one(backend)
        expected = await enqueue(backend, *(a_job() for _ in range(3)))
        lost = await claim(backend)
        assert [job.id for job in lost] == expected
        assert await backend.jobs.unacknowledged_leases("worker-a", known.fence) == [job.lease for job in lost]
        assert await backend.jobs.unacknowledged_leases("worker-a", lost[0].fence) == []

    async def test_leases_of_others_and_ended_leases_are_not_listed(self, backend: Backend) -> None:
        known = await hold_one(backend)
        ended, returned = await hold_one(backend), await hold_one(backend)
        await enqueue(backend, a_job())
        await claim(backend, worker_id="worker-b")
        await finish(backend, ended.lease, OUTCOMES["completed"])
        await backend.jobs.release([returned.lease], started=False)
        assert await backend.jobs.unacknowledged_leases("worker-a", known.fence) == []

    async def test_listed_leases_can_be_released_without_cost(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=1))
        await claim(backend)
        leases = await backend.jobs.unacknowledged_leases("worker-a", 0)
        assert await backend.jobs.release(leases, started=False) == [Verdict.DONE]
        again = await claim_one(backend)
        assert (again.id, again.attempt, again.used_attempts, again.lost) == (job_id, 2, 1, 0)


class TestExtend(Conformance):
    """`JobStore.extend` and `Extender`."""

    async def test_a_lease_is_extended_to_duration_from_now(self, backend: Backend, clock: ManualClock) -> None:
        jobs = [await hold_one(backend), await hold_one(backend)]
        clock.advance(20)
        assert await backend.jobs.extend(jobs[0].lease, LEASE) is Verdict.DONE
        extension = await in_extender(backend, lambda extender: extender.extend([jobs[1].lease], LEASE))
        assert (extension.lost, extension.skipped) == ([], [])
        assert [(await lease_of(backend, job.id)).expires_in for job in jobs] == [LEASE, LEASE]

    async def test_a_lease_is_never_made_shorter(self, backend: Backend) -> None:
        jobs = [await hold_one(backend), await hold_one(backend)]
        assert await backend.jobs.extend(jobs[0].lease, SECOND) is Verdict.DONE
        await in_extender(backend, lambda extender: extender.extend([jobs[1].lease], SECOND))
        assert [(await lease_of(backend, job.id)).expires_in for job in jobs] == [LEASE, LEASE]

    async def test_a_lease_whose_fence_is_stale_is_answered_as_lost_and_changes_nothing(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        stale, live = await make_stale(backend, clock), await hold_one(backend)
        clock.advance(5)
        before = await snapshot(backend, stale.id)
        extension = await in_extender(backend, lambda extender: extender.extend([stale.lease, live.lease], LEASE * 9))
        assert extension.lost == [stale.lease]
        assert await backend.jobs.extend(stale.lease, LEASE * 9) is Verdict.LOST
        assert await snapshot(backend, stale.id) == before
        assert (await lease_of(backend, live.id)).expires_in == LEASE * 9

    async def test_an_expired_lease_that_was_not_rescued_is_extended(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        jobs = [await hold_one(backend), await hold_one(backend)]
        clock.advance(LEASE * 3)
        assert await backend.jobs.extend(jobs[0].lease, LEASE) is Verdict.DONE
        extension = await in_extender(backend, lambda extender: extender.extend([jobs[1].lease], LEASE))
        assert extension.lost == []
        assert await backend.jobs.rescue(None, MANY) == []

    async def test_of_two_fences_of_one_job_in_one_call_only_the_stale_one_is_lost(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        """A worker that lost a job and claimed it again extends both leases until the first handler notices."""
        job = await hold_one(backend)
        assert await backend.jobs.reset(job.id)
        again = await claim_one(backend)
        clock.advance(5)
        one_way = await in_extender(backend, lambda extender: extender.extend([job.lease, again.lease], LEASE))
        other_way = await in_extender(backend, lambda extender: extender.extend([again.lease, job.lease], LEASE))
        assert (one_way.lost, other_way.lost) == ([job.lease], [job.lease])
        assert (await lease_of(backend, again.id)).expires_in == LEASE

    async def test_extending_reports_cancel_requests(self, backend: Backend) -> None:
        asked, other = await hold_one(backend), await hold_one(backend)
        await backend.jobs.cancel(asked.id, "not wanted")
        extension = await in_extender(backend, lambda extender: extender.extend([asked.lease, other.lease], LEASE))
        assert extension.cancel_asked == [asked.lease]

    async def test_the_leases_of_a_worker_with_cancel_requests_are_returned(self, backend: Backend) -> None:
        mine = await hold_one(backend, worker_id="worker-a")
        other = await hold_one(backend, worker_id="worker-b")
        await hold_one(backend, worker_id="worker-a")
        for job in (mine, other):
            await backend.jobs.cancel(job.id, "not wanted")
        assert await in_extender(backend, lambda extender: extender.cancel_asked("worker-a")) == [mine.lease]
        assert await in_extender(backend, lambda extender: extender.cancel_asked("worker-c")) == []

    async def test_extending_nothing_answers_nothing(self, backend: Backend) -> None:
        extension = await in_extender(backend, lambda extender: extender.extend([], LEASE))
        assert (extension.lost, extension.cancel_asked, extension.skipped) == ([], [], [])

    async def test_a_heartbeat_registers_the_worker_and_ends_its_silence(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        heartbeat = WorkerHeartbeat(
            worker_id="worker-a", host="here", pid=7, queues=("mail",), concurrency=4, lease=LEASE, running=0
        )
        await in_extender(backend, lambda extender: extender.heartbeat(heartbeat))
        started = clock.now
        clock.advance(5)
        (worker,) = await backend.insight.workers()
        assert (worker.heartbeat, worker.started_at, worker.silent) == (heartbeat, started, timedelta(seconds=5))
        await in_extender(backend, lambda extender: extender.heartbeat(heartbeat))
        (worker,) = await backend.insight.workers()
        assert (worker.started_at, worker.silent) == (started, timedelta(0))


class TestProgressAndVerify(Conformance):
    """`JobStore.progress` and `JobStore.verify`."""

    async def test_progress_records_percent_and_note(self, backend: Backend) -> None:
        job = await hold_one(backend)
        assert await backend.jobs.progress(job.lease, 42.5, "halfway") is Verdict.DONE
        lease = await lease_of(backend, job.id)
        assert (lease.percent, lease.note) == (42.5, "halfway")

    async def test_progress_ends_with_its_attempt(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await backend.jobs.progress(job.lease, 42.5, "halfway")
        await backend.jobs.release([job.lease], started=False)
        again = await claim_one(backend)
        lease = await lease_of(backend, again.id)
        assert (lease.percent, lease.note) == (None, None)

    async def test_verify_returns_the_standing_of_a_lease(self, backend: Backend, clock: ManualClock) -> None:
        stale = await make_stale(backend, clock)
        assert await backend.jobs.verify(stale.lease) is Standing.LOST
        job = await hold_one(backend)
        assert await backend.jobs.verify(job.lease) is Standing.HELD
        clock.advance(LEASE * 2)
        assert await backend.jobs.verify(job.lease) is Standing.HELD
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED

    async def test_a_lease_whose_job_another_fence_completed_is_lost(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        stale = await make_stale(backend, clock)
        fence = (await lease_of(backend, stale.id)).fence
        lease = type(stale.lease)(job_id=stale.id, seq=stale.seq, fence=fence)
        assert await finish(backend, lease, OUTCOMES["completed"]) is Verdict.DONE
        assert await backend.jobs.verify(stale.lease) is Standing.LOST
        assert await backend.jobs.verify(lease) is Standing.COMPLETED
