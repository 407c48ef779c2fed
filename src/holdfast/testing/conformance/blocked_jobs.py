"""Order keys, continued: blocked jobs, concurrency and transactions."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

import pytest

from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, JobFilter, Outstanding, Retention, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    MANY,
    OUTCOMES,
    Conformance,
    EffectTable,
    MakeBackend,
    claim,
    claim_one,
    enqueue,
    finish,
    queue_view,
    state_of,
)
from holdfast.testing.conformance.order_keys import ENDS, hold_head, keyed, states

LIMIT = timedelta(seconds=10)


class TestBlockedJobs(Conformance):
    """Blocked jobs: listed, counted, cancelled, retried."""

    async def test_a_blocked_job_that_is_cancelled_leaves_and_the_others_close_up(self, backend: Backend) -> None:
        job, (second, third) = await hold_head(backend, waiting=2)
        assert await backend.jobs.cancel(second, "not wanted") is Cancellation.CANCELLED
        assert await backend.jobs.cancel(second, "not wanted") is Cancellation.TOO_LATE
        assert await states(backend, job.id, second, third) == [
            JobState.RUNNING,
            JobState.CANCELLED,
            JobState.BLOCKED,
        ]
        await finish(backend, job.lease, Completed())
        assert [each.id for each in await claim(backend)] == [third]

    @pytest.mark.parametrize("end", ["failed", "cancelled"])
    async def test_a_job_retried_by_an_operator_goes_to_the_tail_of_its_order_key(
        self, backend: Backend, end: str
    ) -> None:
        job, others = await hold_head(backend, waiting=2)
        await finish(backend, job.lease, OUTCOMES[end])
        assert await backend.jobs.retry(job.id)
        assert await states(backend, job.id, *others) == [JobState.BLOCKED, JobState.READY, JobState.BLOCKED]
        (late,) = await enqueue(backend, keyed())
        done: list[str] = []
        while jobs := await claim(backend):
            done += [each.id for each in jobs]
            await backend.jobs.finish([Finish(each.lease, Completed()) for each in jobs])
        assert done == [*others, job.id, late]

    async def test_a_retried_job_whose_order_key_is_free_is_ready_with_a_fresh_budget(self, backend: Backend) -> None:
        job, _ = await hold_head(backend, waiting=0)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.retry(job.id)
        (following,) = await enqueue(backend, keyed())
        again = await claim_one(backend)
        assert (again.id, again.attempt, again.used_attempts) == (job.id, 2, 1)
        assert await state_of(backend, following) is JobState.BLOCKED

    async def test_a_retried_job_that_had_to_wait_keeps_its_counters(self, backend: Backend) -> None:
        job, (following,) = await hold_head(backend, waiting=1)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.retry(job.id)
        second = await claim_one(backend)
        assert second.id == following
        await finish(backend, second.lease, Completed())
        again = await claim_one(backend)
        assert (again.id, again.attempt, again.used_attempts) == (job.id, 2, 1)

    async def test_a_blocked_job_is_neither_retried_nor_reset_nor_promoted_nor_pruned(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        _, (blocked,) = await hold_head(backend, waiting=1)
        assert not await backend.jobs.retry(blocked)
        assert not await backend.jobs.reset(blocked)
        clock.advance(timedelta(days=400))
        assert (await backend.jobs.promote(MANY)).moved == 0
        zero = timedelta(0)
        assert await backend.jobs.prune(Retention(zero, zero, zero), MANY) == 0
        assert await state_of(backend, blocked) is JobState.BLOCKED

    async def test_pruning_an_ended_head_leaves_the_next_claimable(self, backend: Backend, clock: ManualClock) -> None:
        job, (following,) = await hold_head(backend, waiting=1)
        await finish(backend, job.lease, Completed())
        clock.advance(timedelta(days=8))
        assert await backend.jobs.prune(Retention(), MANY) == 1
        assert [each.id for each in await claim(backend)] == [following]

    async def test_blocked_jobs_are_listed_in_the_order_of_their_enqueue(self, backend: Backend) -> None:
        _, others = await hold_head(backend, waiting=5)
        await enqueue(backend, keyed("b", "mail"), keyed("b", "mail", task="charge"))
        page = await backend.insight.jobs(JobFilter(JobState.BLOCKED, queue="default", limit=3))
        assert page.cursor is not None
        rest = await backend.insight.jobs(JobFilter(JobState.BLOCKED, queue="default", cursor=page.cursor, limit=3))
        assert [view.id for view in page.jobs + rest.jobs] == others
        assert {(view.state, view.order_key) for view in page.jobs} == {(JobState.BLOCKED, "customer-3")}
        (charge,) = (await backend.insight.jobs(JobFilter(JobState.BLOCKED, task="charge"))).jobs
        assert (charge.queue, charge.order_key) == ("mail", "b")

    async def test_every_state_shows_the_key(self, backend: Backend) -> None:
        job, (blocked,) = await hold_head(backend, waiting=1)
        seen = {(await backend.insight.job(each)).job.order_key for each in (job.id, blocked)}
        for end in ENDS:
            await finish(backend, job.lease, OUTCOMES[end])
            (ended,) = (await backend.insight.jobs(JobFilter(JobState(end)))).jobs
            seen.add(ended.order_key)
            await enqueue(backend, keyed())
            job = await claim_one(backend)
        assert seen == {"customer-3"}

    async def test_blocked_jobs_are_counted(self, backend: Backend) -> None:
        await hold_head(backend, waiting=3)
        view = await queue_view(backend, "default")
        assert (view.ready, view.running, view.blocked) == (0, 1, 3)
        left = await backend.jobs.outstanding(["greet"], None)
        assert (left.blocked, left.running, left.is_empty) == (3, 1, False)
        assert (await backend.jobs.outstanding(["greet"], ["mail"])).is_empty

    async def test_jobs_behind_a_head_that_a_worker_cannot_run_are_not_outstanding_for_it(
        self, backend: Backend
    ) -> None:
        await enqueue(backend, keyed("delayed", delay=timedelta(days=1)), keyed("delayed"))
        await enqueue(backend, keyed("unknown", task="charge"), keyed("unknown"))
        await enqueue(backend, keyed("paused", "mail"), keyed("paused", "mail"))
        await backend.queues.pause("mail")
        left = await backend.jobs.outstanding(["greet"], None)
        assert left == Outstanding(ready=0, retrying=0, blocked=0, running=0, delayed=2, paused=2, unknown=2)
        assert left.is_empty
        (job,) = await claim(backend, tasks=["charge"])
        left = await backend.jobs.outstanding(["greet"], None)
        assert (left.running, left.blocked, left.unknown, left.is_empty) == (1, 1, 0, False)
        await finish(backend, job.lease, OUTCOMES["retried"])
        left = await backend.jobs.outstanding(["greet", "charge"], None)
        assert (left.retrying, left.blocked, left.is_empty) == (1, 1, False)


class TestOrderKeyConcurrency(Conformance):
    """Concurrent enqueues and finishes with the same order keys."""

    async def test_concurrent_enqueues_to_one_order_key_make_one_head(self, backend: Backend) -> None:
        jobs = [keyed() for _ in range(12)]
        await asyncio.gather(*(backend.jobs.enqueue([job]) for job in jobs))
        assert sorted(await states(backend, *(job.id for job in jobs))) == ["blocked"] * 11 + ["ready"]

    async def test_no_job_is_stranded_when_an_order_key_is_filled_while_it_drains(self, backend: Backend) -> None:
        filled = asyncio.Event()
        done: list[str] = []

        async def fill() -> list[str]:
            ids: list[str] = []
            for number in range(60):
                ids += await enqueue(backend, keyed(f"customer-{number % 3}"))
            filled.set()
            return ids

        async def drain() -> None:
            while True:
                was_filled = filled.is_set()
                jobs = await claim(backend)
                assert len({job.order_key for job in jobs}) == len(jobs)
                await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
                done.extend(job.id for job in jobs)
                if not jobs and was_filled and (await backend.jobs.outstanding(["greet"], None)).is_empty:
                    return

        async with asyncio.timeout(30):
            ids, *_ = await asyncio.gather(fill(), drain(), drain())
        assert sorted(done) == sorted(ids)

    async def test_batches_with_several_keys_in_any_order_do_not_deadlock(self, backend: Backend) -> None:
        names = [f"customer-{number}" for number in range(6)]
        batches = [[keyed(name) for name in order] for order in (names, names[::-1], names[3:] + names[:3]) * 4]
        async with asyncio.timeout(30):
            await asyncio.gather(*(backend.jobs.enqueue(batch) for batch in batches))
            done = 0
            while jobs := await claim(backend):
                assert sorted(job.order_key or "" for job in jobs) == names
                halves = jobs[::2], jobs[1::2][::-1]
                for verdicts in await asyncio.gather(
                    *(backend.jobs.finish([Finish(job.lease, Completed()) for job in half]) for half in halves)
                ):
                    assert set(verdicts) == {Verdict.DONE}
                done += len(jobs)
        assert done == sum(map(len, batches))


class TestOrderKeyTransactions(Conformance):
    """Effect, completion and the unblocking of the next job commit together."""

    needs: ClassVar[frozenset[str]] = frozenset({"commits_effects"})

    async def test_a_completion_in_the_handlers_transaction_unblocks_the_next(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await transaction.complete(job.lease, None) is Verdict.DONE
        assert await states(backend, job.id, *others) == [JobState.COMPLETED, JobState.READY]

    async def test_a_completion_in_a_thread_unblocks_the_next(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1)

        def complete() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                assert transaction.complete(job.lease, None) is Verdict.DONE

        await asyncio.to_thread(complete)
        assert [each.id for each in await claim(backend)] == others

    async def test_a_transaction_that_is_rolled_back_unblocks_none(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1)

        async def complete_and_fail() -> None:
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await transaction.complete(job.lease, None)
                raise RuntimeError("undone")

        with pytest.raises(RuntimeError, match="undone"):
            await complete_and_fail()
        assert await states(backend, job.id, *others) == [JobState.RUNNING, JobState.BLOCKED]
        await finish(backend, job.lease, Completed())
        assert [each.id for each in await claim(backend)] == others

    async def test_a_handler_that_enqueues_to_its_own_order_key_is_followed_by_that_job(self, backend: Backend) -> None:
        job, _ = await hold_head(backend, waiting=0)
        following = keyed()
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([following]) == [True]
            await transaction.complete(job.lease, None)
        assert [each.id for each in await claim(backend)] == [following.id]

    async def test_the_commit_that_unblocks_the_next_notifies(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1)
        loop, notified = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(notified.set)

        unlisten = backend.notifier.listen(wake)
        try:
            async with asyncio.timeout(10):
                async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                    notified.clear()
                    await transaction.complete(job.lease, None)
                while not (jobs := await claim(backend)):
                    await notified.wait()
                    notified.clear()
                assert [each.id for each in jobs] == others
                await finish(backend, jobs[0].lease, Completed())
        finally:
            unlisten()


class TestOrderKeyCallersTransaction(Conformance):
    """Order keys and the caller's own transaction."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions", "shared"})

    async def test_a_completion_in_the_callers_transaction_unblocks_the_next(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        job, others = await hold_head(backend, waiting=1)
        for commits in (False, True):
            with effects.connect() as connection:
                assert backend.transactions.complete(job.lease, None, using=connection) is Verdict.DONE
                (connection.commit if commits else connection.rollback)()
            expected = [JobState.COMPLETED, JobState.READY] if commits else [JobState.RUNNING, JobState.BLOCKED]
            assert await states(backend, job.id, *others) == expected

    async def test_an_enqueue_that_is_rolled_back_leaves_the_order_key_unchanged(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        undone, kept = keyed(), keyed()
        with effects.connect() as connection:
            await backend.transactions.join(connection).enqueue([undone])
            connection.rollback()
        await enqueue(backend, kept)
        assert await state_of(backend, kept.id) is JobState.READY

    async def test_an_enqueue_waits_for_a_transaction_in_flight_that_changes_its_order_key(
        self, backend: Backend, effects: EffectTable, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        first, second = keyed(order_key := new_id()), keyed(order_key)
        with effects.connect() as connection:
            await backend.transactions.join(connection).enqueue([first])
            waiting = asyncio.ensure_future(other.jobs.enqueue([second]))
            done, _ = await asyncio.wait({waiting}, timeout=0.3)
            assert not done
            connection.commit()
        assert await waiting == [True]
        assert await states(backend, first.id, second.id) == [JobState.READY, JobState.BLOCKED]
