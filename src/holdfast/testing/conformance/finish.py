"""Finish: each outcome from each state, repeats, attempt records and counters."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.budget import MAX_LOST
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Cancelled, Completed, Failed, Retried, Snoozed
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    FAILURE,
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
    make_stale,
    result_of,
    snapshot,
    state_of,
)

GOES_TO = {
    "completed": JobState.COMPLETED,
    "retried": JobState.SCHEDULED,
    "snoozed": JobState.SCHEDULED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
    "lost": JobState.READY,
}
NOT_RUNNING = [state for state in JobState if state not in {JobState.RUNNING, JobState.BLOCKED}]


class TestTransitions(Conformance):
    """`JobStore.finish`, sentences 1, 2 and 4: the complete transition table."""

    @pytest.mark.parametrize("outcome", GOES_TO)
    async def test_completed_goes_to_the_ledger_retried_and_snoozed_to_scheduled_failed_and_cancelled_to_their_own(
        self, backend: Backend, outcome: str
    ) -> None:
        job = await hold_one(backend)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        details = await backend.insight.job(job.id)
        assert (details.job.state, details.lease) == (GOES_TO[outcome], None)

    @pytest.mark.parametrize("outcome", GOES_TO)
    @pytest.mark.parametrize("state", NOT_RUNNING)
    async def test_a_stale_fence_changes_nothing_and_is_answered_lost_in_any_state(
        self, backend: Backend, state: JobState, outcome: str
    ) -> None:
        job_id, lease = await bring_to(backend, state)
        before = await snapshot(backend, job_id)
        stale = Lease(job_id=job_id, seq=lease.seq, fence=lease.fence - 1)
        assert await finish(backend, stale, OUTCOMES[outcome]) is Verdict.LOST
        assert await snapshot(backend, job_id) == before

    @pytest.mark.parametrize("outcome", GOES_TO)
    async def test_a_fence_that_was_overtaken_changes_nothing_and_is_answered_lost(
        self, backend: Backend, clock: ManualClock, outcome: str
    ) -> None:
        stale = await make_stale(backend, clock)
        before = await snapshot(backend, stale.id)
        assert await finish(backend, stale.lease, OUTCOMES[outcome]) is Verdict.LOST
        assert await snapshot(backend, stale.id) == before

    @pytest.mark.parametrize("outcome", GOES_TO)
    async def test_the_fence_of_a_released_lease_is_stale(self, backend: Backend, outcome: str) -> None:
        for started in (True, False):
            job = await hold_one(backend)
            await backend.jobs.release([job.lease], started=started)
            before = await snapshot(backend, job.id)
            assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.LOST
            assert await snapshot(backend, job.id) == before
            await claim_one(backend)

    @pytest.mark.parametrize("briefly", [False, True])
    async def test_the_other_finishes_are_written_with_one_verdict_each_in_order(
        self, backend: Backend, clock: ManualClock, briefly: bool
    ) -> None:
        stale = await make_stale(backend, clock)
        live = [await hold_one(backend) for _ in OUTCOMES]
        finishes = [Finish(job.lease, outcome) for job, outcome in zip(live, OUTCOMES.values(), strict=True)]
        finishes.insert(3, Finish(stale.lease, Completed()))
        verdicts = await backend.jobs.finish(finishes, briefly=briefly)
        assert verdicts == [Verdict.DONE] * 3 + [Verdict.LOST] + [Verdict.DONE] * 3
        assert [await state_of(backend, job.id) for job in live] == list(GOES_TO.values())

    @pytest.mark.parametrize("outcome", GOES_TO)
    async def test_a_repeat_of_a_finish_that_was_written_under_the_same_fence_is_answered_done_and_changes_nothing(
        self, backend: Backend, outcome: str
    ) -> None:
        job = await hold_one(backend)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        before = await snapshot(backend, job.id)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        assert await snapshot(backend, job.id) == before

    @pytest.mark.parametrize("outcome", GOES_TO)
    async def test_a_different_outcome_under_the_same_fence_is_no_repeat_and_is_answered_lost(
        self, backend: Backend, outcome: str
    ) -> None:
        job = await hold_one(backend)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        before = await snapshot(backend, job.id)
        for other in OUTCOMES.keys() - {outcome}:
            assert await finish(backend, job.lease, OUTCOMES[other]) is Verdict.LOST
        assert await snapshot(backend, job.id) == before

    async def test_the_same_finish_twice_in_one_call_is_written_once(self, backend: Backend) -> None:
        for outcome in OUTCOMES.values():
            job = await hold_one(backend)
            once = Finish(job.lease, outcome)
            assert await backend.jobs.finish([once, once]) == [Verdict.DONE, Verdict.DONE]
            assert len((await backend.insight.job(job.id)).attempts) == (0 if isinstance(outcome, Completed) else 1)
            await claim(backend)  # claims those that are ready again

    async def test_an_expired_lease_that_was_not_rescued_can_be_finished(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        clock.advance(3600)
        assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        assert await state_of(backend, job.id) is JobState.COMPLETED

    async def test_the_finish_of_a_job_that_is_not_known_is_answered_lost(self, backend: Backend) -> None:
        unknown = Lease(job_id=a_job().id, seq=4711, fence=1)
        assert await finish(backend, unknown, Completed()) is Verdict.LOST

    async def test_finishing_nothing_answers_nothing(self, backend: Backend) -> None:
        assert await backend.jobs.finish([]) == []

    async def test_a_large_batch_is_finished_as_one(self, backend: Backend) -> None:
        await enqueue(backend, *(a_job() for _ in range(1500)))
        jobs = [job for _ in "ab" for job in await claim(backend)]
        verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        assert verdicts == [Verdict.DONE] * 1500
        assert (await backend.jobs.outstanding(["greet"], None)).is_empty


class TestRecordedOutcomes(Conformance):
    """`JobStore.finish`: what is recorded for each outcome."""

    async def test_the_result_of_a_completed_job_is_stored(self, backend: Backend) -> None:
        job = await hold_one(backend)
        assert await result_of(backend, job.id) is None
        await finish(backend, job.lease, Completed('{"paid":true,"to":"ä"}'))
        assert await result_of(backend, job.id) == '{"paid":true,"to":"ä"}'
        assert (await backend.insight.job(job.id)).result == '{"paid":true,"to":"ä"}'

    async def test_a_job_that_had_no_result_or_is_not_completed_has_none(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, Completed(None))
        assert await result_of(backend, job.id) is None
        job_id, _ = await bring_to(backend, JobState.FAILED)
        assert await result_of(backend, job_id) is None

    async def test_a_retried_job_is_due_after_its_delay_and_the_attempt_counts(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, Retried(timedelta(seconds=10), FAILURE))
        clock.advance(9)
        assert (await backend.jobs.promote(MANY)).moved == 0
        clock.advance(1)
        assert (await backend.jobs.promote(MANY)).moved == 1
        again = await claim_one(backend)
        assert (again.id, again.attempt, again.used_attempts) == (job.id, 2, 2)

    async def test_a_snoozed_job_is_due_after_its_delay_and_the_attempt_is_excused(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, Snoozed(timedelta(seconds=10)))
        clock.advance(10)
        assert (await backend.jobs.promote(MANY)).moved == 1
        again = await claim_one(backend)
        assert (again.attempt, again.used_attempts, again.interrupted) == (2, 1, 0)

    @pytest.mark.parametrize("outcome", ["retried", "snoozed", "failed", "cancelled", "lost"])
    async def test_every_attempt_that_did_not_complete_leaves_a_record(
        self, backend: Backend, clock: ManualClock, outcome: str
    ) -> None:
        job = await hold_one(backend)
        started = clock.now
        clock.advance(2)
        await finish(backend, job.lease, OUTCOMES[outcome])
        (record,) = (await backend.insight.job(job.id)).attempts
        named = "rescued" if outcome == "lost" else outcome
        assert (record.attempt, record.fence, record.worker_id, record.outcome) == (1, job.fence, "worker-a", named)
        assert (record.started_at, record.ended_at) == (started, clock.now)
        if outcome in {"retried", "failed", "lost"}:
            assert (record.error_class, record.message) == (FAILURE.error_class, FAILURE.message)
            assert (record.traceback, record.signature) == (FAILURE.traceback, FAILURE.signature)

    async def test_every_attempt_keeps_the_fence_of_its_lease(self, backend: Backend) -> None:
        """Also the one that completed the job, and none before it did."""
        first = await hold_one(backend)
        await finish(backend, first.lease, Retried(timedelta(0), FAILURE))
        await backend.jobs.promote(1)
        last = await claim_one(backend)
        assert (await backend.insight.job(last.id)).completed_fence is None
        await finish(backend, last.lease, Completed())
        ended = await backend.insight.job(last.id)
        assert [(each.outcome, each.fence) for each in ended.all_attempts] == [
            ("retried", first.fence),
            ("completed", last.fence),
        ]

    async def test_the_first_and_the_last_attempt_records_are_kept(self, backend: Backend) -> None:
        job = await hold_one(backend, max_attempts=1000)
        for _ in range(120):
            await finish(backend, job.lease, Retried(timedelta(0), FAILURE))
            await backend.jobs.promote(1)
            job = await claim_one(backend)
        kept = [record.attempt for record in (await backend.insight.job(job.id)).attempts]
        assert kept[:2] == [1, 2]
        assert kept[-2:] == [119, 120]
        assert len(kept) < 100

    async def test_an_error_text_may_contain_any_characters(self, backend: Backend) -> None:
        job = await hold_one(backend)
        failure = type(FAILURE)(error_class="Odd", message="nul \x00, quote ', emoji 🙂, long " + "x" * 50_000)
        assert await finish(backend, job.lease, Failed(failure)) is Verdict.DONE
        (record,) = (await backend.insight.job(job.id)).attempts
        assert record.message is not None
        assert record.message.startswith("nul ")
        assert "emoji 🙂" in record.message

    async def test_a_failed_job_keeps_its_reason(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, Failed(FAILURE))
        reason = (await backend.insight.job(job.id)).job.reason
        assert reason is not None
        assert FAILURE.message in reason

    async def test_a_cancelled_job_keeps_its_reason(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, Cancelled("the order was withdrawn"))
        assert (await backend.insight.job(job.id)).job.reason == "the order was withdrawn"


class TestLostAndCancelled(Conformance):
    """`JobStore.finish`, sentences 5 and 6."""

    async def test_lost_is_decided_by_after_loss_with_isolated_true(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=50))
        for lost in range(MAX_LOST):
            job = await claim_one(backend)
            assert (job.lost, job.used_attempts) == (lost, lost + 1)
            assert await finish(backend, job.lease, OUTCOMES["lost"]) is Verdict.DONE
        details = await backend.insight.job(job_id)
        assert details.job.state is JobState.FAILED
        assert details.job.reason is not None
        assert f"worker lost {MAX_LOST} times" in details.job.reason

    async def test_a_job_lost_on_its_last_attempt_is_failed(self, backend: Backend) -> None:
        job = await hold_one(backend, max_attempts=1)
        await finish(backend, job.lease, OUTCOMES["lost"])
        assert await state_of(backend, job.id) is JobState.FAILED

    @pytest.mark.parametrize("outcome", ["retried", "snoozed", "lost"])
    async def test_a_job_with_a_cancel_request_is_cancelled_instead_of_run_again(
        self, backend: Backend, outcome: str
    ) -> None:
        job = await hold_one(backend)
        assert await backend.jobs.cancel(job.id, "not wanted") is Cancellation.ASKED
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        details = await backend.insight.job(job.id)
        assert (details.job.state, details.job.reason) == (JobState.CANCELLED, "not wanted")
        assert len(details.attempts) == 1

    @pytest.mark.parametrize("started", [True, False])
    async def test_a_released_job_with_a_cancel_request_is_cancelled(self, backend: Backend, *, started: bool) -> None:
        job = await hold_one(backend)
        await backend.jobs.cancel(job.id, "not wanted")
        assert await backend.jobs.release([job.lease], started=started) == [Verdict.DONE]
        assert await state_of(backend, job.id) is JobState.CANCELLED

    @pytest.mark.parametrize("outcome", ["completed", "failed"])
    async def test_a_handler_may_still_finish_a_job_with_a_cancel_request(self, backend: Backend, outcome: str) -> None:
        job = await hold_one(backend)
        await backend.jobs.cancel(job.id, "not wanted")
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        assert await state_of(backend, job.id) is GOES_TO[outcome]
