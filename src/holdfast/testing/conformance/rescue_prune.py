"""Maintenance: promote, rescue, reset, cancel, retry and prune are bounded, repeatable and safe while workers run."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from holdfast.errors import JobNotFound
from holdfast.model.budget import MAX_INTERRUPTED
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.backend import Backend
from holdfast.store.jobs import Extender
from holdfast.store.values import Cancellation, Finish, Promotion, Retention, Standing, Verdict, WorkerHeartbeat
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    bring_to,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    in_extender,
    lease_of,
    result_of,
    snapshot,
    state_of,
)

SECOND = timedelta(seconds=1)
ALIVE = [JobState.SCHEDULED, JobState.READY, JobState.RUNNING]


class TestPromote(Conformance):
    """`JobStore.promote`."""

    async def test_it_moves_at_most_limit_due_jobs_from_scheduled_to_ready_the_longest_due_first(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        late, early, middle, future = await enqueue(
            backend, *(a_job(delay=timedelta(seconds=seconds)) for seconds in (9, 1, 5, 60))
        )
        clock.advance(10)
        assert await backend.jobs.promote(2) == Promotion(moved=2, next_due=timedelta(0))
        assert {job.id for job in await claim(backend)} == {early, middle}
        assert await backend.jobs.promote(2) == Promotion(moved=1, next_due=timedelta(seconds=50))
        assert [job.id for job in await claim(backend)] == [late]
        assert await state_of(backend, future) is JobState.SCHEDULED

    async def test_with_none_waiting_there_is_no_next_due(self, backend: Backend) -> None:
        await enqueue(backend, a_job())
        assert await backend.jobs.promote(MANY) == Promotion(moved=0, next_due=None)


def _send_heartbeat(heartbeat: WorkerHeartbeat, extender: Extender) -> None:
    extender.heartbeat(heartbeat)


class TestRescue(Conformance):
    """`JobStore.rescue` and `JobStore.rescue_worker`."""

    async def test_it_takes_at_most_limit_expired_leases(self, backend: Backend, clock: ManualClock) -> None:
        held = {(await hold_one(backend)).id for _ in range(3)}
        clock.advance(LEASE + SECOND)
        first = {rescued.job_id for rescued in await backend.jobs.rescue(None, 2)}
        rest = {rescued.job_id for rescued in await backend.jobs.rescue(None, 2)}
        assert (len(first), first | rest) == (2, held)
        assert await backend.jobs.rescue(None, 2) == []

    async def test_a_lease_is_taken_only_if_unbroken_access_is_at_least_half_of_its_own_duration(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        short = await hold_one(backend, lease=timedelta(seconds=10))
        long = await hold_one(backend, lease=timedelta(seconds=60))
        clock.advance(3600)
        assert await backend.jobs.rescue(timedelta(0), MANY) == []
        assert await backend.jobs.rescue(timedelta(seconds=4), MANY) == []
        assert [each.job_id for each in await backend.jobs.rescue(timedelta(seconds=5), MANY)] == [short.id]
        assert await backend.jobs.rescue(timedelta(seconds=29), MANY) == []
        assert [each.job_id for each in await backend.jobs.rescue(timedelta(seconds=30), MANY)] == [long.id]

    async def test_an_operators_rescue_takes_every_expired_lease(self, backend: Backend, clock: ManualClock) -> None:
        held = {(await hold_one(backend, lease=lease)).id for lease in (SECOND, LEASE)}
        alive = await hold_one(backend, lease=timedelta(hours=2))
        clock.advance(3600)
        assert {each.job_id for each in await backend.jobs.rescue(None, MANY)} == held
        assert await backend.jobs.verify(alive.lease) is Standing.HELD

    async def test_expiry_is_judged_by_the_stores_clock_in_the_step_that_takes_the_lease(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        clock.advance(LEASE - SECOND)
        assert await backend.jobs.rescue(None, MANY) == []
        await backend.jobs.extend(job.lease, LEASE)
        clock.advance(LEASE - SECOND)
        assert await backend.jobs.rescue(None, MANY) == []
        clock.advance(SECOND * 2)
        (rescued,) = await backend.jobs.rescue(None, MANY)
        assert (rescued.job_id, rescued.worker_id, rescued.attempt) == (job.id, "worker-a", 1)
        assert (rescued.task, rescued.queue, rescued.state) == ("greet", "default", JobState.READY)

    async def test_a_job_lost_together_with_others_is_excused_and_runs_isolated_from_then_on(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        assert not (await lease_of(backend, job.id)).isolated
        clock.advance(LEASE * 2)
        await backend.jobs.rescue(None, MANY)
        again = await claim_one(backend)
        assert (again.attempt, again.used_attempts, again.lost, again.interrupted) == (2, 1, 1, 1)
        assert (await lease_of(backend, job.id)).isolated

    async def test_what_becomes_of_each_job_is_decided_by_after_loss(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        """Lost once together with others, then isolated: the attempts count, and the third loss fails the job."""
        (job_id,) = await enqueue(backend, a_job(max_attempts=50))
        states: list[JobState] = []
        for expected in (1, 1, 2):
            job = await claim_one(backend)
            assert job.used_attempts == expected
            clock.advance(LEASE * 2)
            states += [rescued.state for rescued in await backend.jobs.rescue(None, MANY)]
        assert states == [JobState.READY, JobState.READY, JobState.FAILED]
        details = await backend.insight.job(job_id)
        assert details.job.reason is not None
        assert "worker lost 3 times" in details.job.reason
        assert [record.outcome for record in details.attempts] == ["rescued"] * 3

    async def test_a_job_that_never_runs_isolated_is_excused_within_a_bound(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=1))
        for _ in range(MAX_INTERRUPTED):
            assert len(await claim(backend, isolates=False)) == 1
            clock.advance(LEASE * 2)
            (rescued,) = await backend.jobs.rescue(None, MANY)
            assert rescued.state is JobState.READY
        await claim(backend, isolates=False)
        clock.advance(LEASE * 2)
        (rescued,) = await backend.jobs.rescue(None, MANY)
        assert (rescued.job_id, rescued.state) == (job_id, JobState.FAILED)

    async def test_a_rescued_job_has_its_old_turn(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend)
        clock.advance(LEASE * 2)
        (other,) = await enqueue(backend, a_job())
        await backend.jobs.rescue(None, MANY)
        assert [each.id for each in await claim(backend)] == [job.id, other]

    async def test_a_rescued_job_with_a_cancel_request_is_cancelled(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend)
        await backend.jobs.cancel(job.id, "not wanted")
        clock.advance(LEASE * 2)
        (rescued,) = await backend.jobs.rescue(None, MANY)
        assert rescued.state is JobState.CANCELLED
        assert (await backend.insight.job(job.id)).job.reason == "not wanted"

    async def test_all_leases_of_a_worker_known_to_be_dead_are_taken_expired_or_not(self, backend: Backend) -> None:
        dead = {(await hold_one(backend, worker_id="worker-z")).id for _ in range(3)}
        alive = await hold_one(backend)
        first = await backend.jobs.rescue_worker("worker-z", "killed by signal 9", 2)
        rest = await backend.jobs.rescue_worker("worker-z", "killed by signal 9", 2)
        assert len(first) == 2
        assert {rescued.job_id for rescued in first + rest} == dead
        assert await backend.jobs.verify(alive.lease) is Standing.HELD
        (record,) = (await backend.insight.job(first[0].job_id)).attempts
        assert record.outcome == "rescued"
        assert record.message is not None
        assert "killed by signal 9" in record.message

    async def test_a_worker_that_is_known_to_be_dead_is_forgotten(self, backend: Backend) -> None:
        for worker_id in ("worker-z", "worker-a"):
            heartbeat = WorkerHeartbeat(
                worker_id=worker_id, host="here", pid=7, queues=None, concurrency=1, lease=LEASE, running=0
            )
            await in_extender(backend, partial(_send_heartbeat, heartbeat))
        await backend.jobs.rescue_worker("worker-z", "killed", MANY)
        assert [worker.heartbeat.worker_id for worker in await backend.insight.workers()] == ["worker-a"]


class TestOperatorActions(Conformance):
    """`JobStore.reset`, `cancel` and `retry`."""

    async def test_a_reset_revokes_a_running_jobs_lease_and_its_holder_becomes_stale(self, backend: Backend) -> None:
        job = await hold_one(backend)
        assert await backend.jobs.reset(job.id)
        assert await backend.jobs.verify(job.lease) is Standing.LOST
        again = await claim_one(backend, worker_id="worker-b")
        assert (again.id, again.attempt, again.used_attempts) == (job.id, 2, 1)

    async def test_a_reset_job_with_a_cancel_request_is_cancelled_and_its_holder_becomes_stale(
        self, backend: Backend
    ) -> None:
        job = await hold_one(backend)
        assert await backend.jobs.cancel(job.id, "not wanted") is Cancellation.ASKED
        assert await backend.jobs.reset(job.id)
        details = await backend.insight.job(job.id)
        assert (details.job.state, details.job.reason) == (JobState.CANCELLED, "not wanted")
        assert await finish(backend, job.lease, OUTCOMES["completed"]) is Verdict.LOST
        assert await claim(backend) == []

    async def test_a_job_that_does_not_run_is_not_reset(self, backend: Backend) -> None:
        for state in (JobState.SCHEDULED, *FINAL_STATES, JobState.READY):
            job_id, _ = await bring_to(backend, state)
            assert not await backend.jobs.reset(job_id)
            assert await state_of(backend, job_id) is state

    @pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.READY])
    async def test_a_job_that_has_not_started_is_cancelled(self, backend: Backend, state: JobState) -> None:
        job_id, lease = await bring_to(backend, state)
        assert await backend.jobs.cancel(job_id, "not wanted") is Cancellation.CANCELLED
        details = await backend.insight.job(job_id)
        assert (details.job.state, details.job.reason) == (JobState.CANCELLED, "not wanted")
        assert await backend.jobs.verify(lease) is Standing.LOST
        assert await claim(backend) == []

    async def test_a_job_that_was_never_claimed_is_cancelled(self, backend: Backend, clock: ManualClock) -> None:
        ids = await enqueue(backend, a_job(), a_job(delay=SECOND, priority=3), a_job(priority=3))
        for job_id in ids:
            assert await backend.jobs.cancel(job_id, "not wanted") is Cancellation.CANCELLED
        clock.advance(5)
        assert (await backend.jobs.promote(MANY)).moved == 0
        assert await claim(backend) == []

    async def test_the_cancellation_of_a_running_job_is_requested_of_its_worker(self, backend: Backend) -> None:
        job = await hold_one(backend)
        assert await backend.jobs.cancel(job.id, "not wanted") is Cancellation.ASKED
        assert await backend.jobs.verify(job.lease) is Standing.HELD
        assert (await lease_of(backend, job.id)).cancel_asked

    @pytest.mark.parametrize("state", sorted(FINAL_STATES))
    async def test_a_job_that_has_ended_is_cancelled_too_late(self, backend: Backend, state: JobState) -> None:
        job_id, _ = await bring_to(backend, state)
        before = await snapshot(backend, job_id)
        assert await backend.jobs.cancel(job_id, "not wanted") is Cancellation.TOO_LATE
        assert await snapshot(backend, job_id) == before

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
    async def test_a_failed_or_cancelled_job_is_made_ready_with_a_fresh_budget(
        self, backend: Backend, state: JobState
    ) -> None:
        job_id, _ = await bring_to(backend, state)
        assert await backend.jobs.retry(job_id)
        job = await claim_one(backend)
        assert (job.id, job.attempt, job.used_attempts) == (job_id, 2, 1)
        assert len((await backend.insight.job(job_id)).attempts) == 1

    @pytest.mark.parametrize("state", [*ALIVE, JobState.COMPLETED])
    async def test_a_job_in_another_state_is_not_retried(self, backend: Backend, state: JobState) -> None:
        job_id, _ = await bring_to(backend, state)
        before = await snapshot(backend, job_id)
        assert not await backend.jobs.retry(job_id)
        assert await snapshot(backend, job_id) == before

    async def test_a_retry_clears_an_earlier_cancel_request(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await backend.jobs.cancel(job.id, "not wanted")
        await finish(backend, job.lease, OUTCOMES["retried"])
        assert await backend.jobs.retry(job.id)
        again = await claim_one(backend)
        assert not (await lease_of(backend, job.id)).cancel_asked
        await finish(backend, again.lease, OUTCOMES["retried"])
        assert await state_of(backend, job.id) is JobState.SCHEDULED

    async def test_a_job_that_is_not_known_raises_job_not_found(self, backend: Backend) -> None:
        with pytest.raises(JobNotFound):
            await backend.jobs.cancel(new_id(), "not wanted")
        with pytest.raises(JobNotFound):
            await backend.jobs.retry(new_id())
        with pytest.raises(JobNotFound):
            await backend.jobs.reset(new_id())
        with pytest.raises(JobNotFound):
            await backend.jobs.run(new_id())

    async def test_a_job_that_was_ever_lost_runs_isolated_after_a_retry_too(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        for asked in (False, True):
            job = await hold_one(backend, max_attempts=1)
            if asked:
                await backend.jobs.cancel(job.id, "not wanted")
                clock.advance(LEASE * 2)
                await backend.jobs.rescue(None, MANY)
            else:
                await finish(backend, job.lease, OUTCOMES["lost"])
            assert await backend.jobs.retry(job.id)
            again = await claim_one(backend)
            assert again.lost == 1
            assert (await lease_of(backend, job.id)).isolated
            await finish(backend, again.lease, OUTCOMES["completed"])


class TestPrune(Conformance):
    """`JobStore.prune`."""

    async def test_it_deletes_finished_jobs_past_their_retention_with_all_that_belongs_to_them(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        ids = {state: (await bring_to(backend, state))[0] for state in sorted(FINAL_STATES)}
        retention = Retention(
            completed=timedelta(hours=1), failed=timedelta(hours=3), cancelled=timedelta(hours=2), counts=None
        )
        for state in (JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED):
            clock.advance(timedelta(minutes=59))
            assert await backend.jobs.prune(retention, MANY) == 0
            clock.advance(timedelta(minutes=2))
            assert await backend.jobs.prune(retention, MANY) == 1
            with pytest.raises(JobNotFound):
                await backend.insight.job(ids[state])
            clock.advance(timedelta(minutes=-1))
        assert await result_of(backend, ids[JobState.COMPLETED]) is None

    async def test_it_deletes_at_most_limit(self, backend: Backend, clock: ManualClock) -> None:
        for _ in range(5):
            await bring_to(backend, JobState.COMPLETED)
        clock.advance(timedelta(days=8))
        assert [await backend.jobs.prune(Retention(), 2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_of_jobs_that_finished_in_one_call_it_deletes_at_most_limit_too(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        for number in (5, 1, 3):
            await enqueue(backend, *(a_job() for _ in range(number)))
            await backend.jobs.finish([Finish(job.lease, OUTCOMES["completed"]) for job in await claim(backend)])
        clock.advance(timedelta(days=8))
        assert [await backend.jobs.prune(Retention(), 2) for _ in range(6)] == [2, 2, 2, 2, 1, 0]

    async def test_what_is_kept_stays_near_rate_times_retention_in_whatever_order_jobs_finish(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        """More jobs finish between two calls than one call may delete, and long jobs finish after short ones."""
        retention = Retention(completed=timedelta(minutes=10), counts=None)
        await enqueue(backend, *(a_job("long") for _ in range(60)))
        long = await claim(backend, queues=["long"], lease=timedelta(hours=2))
        kept = 0
        for job in long:
            clock.advance(timedelta(minutes=1))
            await enqueue(backend, *(a_job() for _ in range(20)))
            ended = [job, *(await claim(backend, queues=["default"]))]
            await backend.jobs.finish([Finish(each.lease, OUTCOMES["completed"]) for each in ended])
            kept += len(ended)
            pruned = 10
            while pruned == 10:  # a worker prunes again at once after a full batch
                pruned = await backend.jobs.prune(retention, 10)
                kept -= pruned
        assert kept == 21 * 10

    async def test_it_never_deletes_a_job_that_has_not_ended(self, backend: Backend, clock: ManualClock) -> None:
        ids = [(await bring_to(backend, state))[0] for state in (JobState.SCHEDULED, JobState.RUNNING, JobState.READY)]
        clock.advance(timedelta(days=1000))
        zero = timedelta(0)
        assert await backend.jobs.prune(Retention(completed=zero, failed=zero, cancelled=zero), MANY) == 0
        assert [await state_of(backend, job_id) for job_id in ids] == [
            JobState.SCHEDULED,
            JobState.RUNNING,
            JobState.READY,
        ]

    async def test_none_keeps_them_forever(self, backend: Backend, clock: ManualClock) -> None:
        for state in FINAL_STATES:
            await bring_to(backend, state)
        clock.advance(timedelta(days=10_000))
        assert await backend.jobs.prune(Retention(completed=None, failed=None, cancelled=None), MANY) == 0

    async def test_the_fence_of_a_pruned_job_is_stale_and_its_id_is_free(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job_id, lease = await bring_to(backend, JobState.COMPLETED)
        clock.advance(timedelta(days=8))
        assert await backend.jobs.prune(Retention(), MANY) == 1
        assert await backend.jobs.verify(lease) is Standing.LOST
        assert await finish(backend, lease, OUTCOMES["failed"]) is Verdict.LOST
        assert await backend.jobs.enqueue([a_job(job_id=job_id)]) == [True]
        assert (await claim_one(backend)).fence > lease.fence
