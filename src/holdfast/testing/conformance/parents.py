"""Jobs that wait for parents: their enqueue, and what the end of each parent does to them."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.errors import ConfigError, JobNotFound
from holdfast.model.conditions import Conditions, Unique
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, Verdict
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
    queue_view,
    snapshot,
    state_of,
)
from holdfast.testing.conformance.order_keys import states

READY, BLOCKED, RUNNING = JobState.READY, JobState.BLOCKED, JobState.RUNNING
COMPLETED, CANCELLED, SCHEDULED = JobState.COMPLETED, JobState.CANCELLED, JobState.SCHEDULED


def after(
    *parents: str,
    run_anyway: bool = False,
    job_id: str | None = None,
    order_key: str | None = None,
    delay: timedelta | None = None,
) -> NewJob:
    """Return a job that waits for these parents."""
    return NewJob(
        id=job_id or new_id(),
        queue="default",
        task="greet",
        payload="{}",
        order_key=order_key,
        delay=delay,
        conditions=Conditions(after=parents, run_anyway=run_anyway),
    )


async def complete_next(backend: Backend) -> str:
    """Claim the next job and complete it; return its id."""
    job = await claim_one(backend)
    assert await finish(backend, job.lease, Completed()) is Verdict.DONE
    return job.id


async def drain(backend: Backend, *, at_once: int = MANY) -> list[str]:
    """Complete jobs until none is ready; return their ids in order."""
    done: list[str] = []
    while jobs := await claim(backend, at_once):
        assert set(await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])) == {Verdict.DONE}
        done += [job.id for job in jobs]
    return done


class TestParents(Conformance):
    """`JobStore.enqueue` with `Conditions.after`."""

    async def test_a_child_is_blocked_until_its_parent_is_completed(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, after(parent))
        assert await states(backend, parent, child) == [READY, BLOCKED]
        job = await claim_one(backend)
        assert job.id == parent
        assert await claim(backend) == []
        assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        assert await state_of(backend, child) is READY
        assert await drain(backend) == [child]
        assert await states(backend, parent, child) == [COMPLETED, COMPLETED]

    async def test_a_child_waits_for_all_of_its_parents(self, backend: Backend) -> None:
        parents = await enqueue(backend, a_job(), a_job(), a_job())
        (child,) = await enqueue(backend, after(*parents))
        for _ in parents:
            assert await state_of(backend, child) is BLOCKED
            await complete_next(backend)
        assert await state_of(backend, child) is READY

    async def test_two_parents_that_end_in_one_batch_release_their_child_once(self, backend: Backend) -> None:
        parents = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(*parents))
        jobs = await claim(backend)
        finishes = [Finish(job.lease, Completed()) for job in jobs]
        assert await backend.jobs.finish(finishes) == [Verdict.DONE] * 2
        assert await backend.jobs.finish(finishes) == [Verdict.DONE] * 2
        assert [job.id for job in await claim(backend)] == [child]
        assert await claim(backend) == []

    async def test_a_batch_of_a_parent_and_of_others_completes_all(self, backend: Backend) -> None:
        parent, other = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(parent))
        finishes = [Finish(job.lease, Completed()) for job in await claim(backend)]
        stale = Finish(finishes[0].lease, OUTCOMES["failed"])
        assert await backend.jobs.finish([*finishes, stale]) == [Verdict.DONE, Verdict.DONE, Verdict.LOST]
        assert await states(backend, parent, other, child) == [COMPLETED, COMPLETED, READY]

    async def test_the_children_of_one_call_wait_for_parents_of_the_same_call(self, backend: Backend) -> None:
        first, second, third, last = (new_id() for _ in range(4))
        jobs = [
            after(first, job_id=second),
            after(second, third, job_id=last),
            a_job(job_id=first),
            after(first, job_id=third),
        ]
        await enqueue(backend, *jobs)
        assert await states(backend, first, second, third, last) == [READY, BLOCKED, BLOCKED, BLOCKED]
        assert await drain(backend, at_once=1) == [first, second, third, last]

    async def test_a_parent_that_is_delayed_releases_its_child_when_it_has_run(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (parent,) = await enqueue(backend, a_job(delay=timedelta(seconds=5)))
        (child,) = await enqueue(backend, after(parent))
        both = new_id()
        late = a_job(delay=timedelta(seconds=5))
        await enqueue(backend, late, after(late.id, job_id=both))
        clock.advance(timedelta(seconds=6))
        assert (await backend.jobs.promote(MANY)).moved == 2
        assert await drain(backend) == [parent, late.id, child, both]

    async def test_a_job_after_completed_parents_is_ready_at_once(self, backend: Backend) -> None:
        parent, _ = await bring_to(backend, COMPLETED)
        (child,) = await enqueue(backend, after(parent))
        assert await state_of(backend, child) is READY

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
    async def test_a_job_after_a_failed_or_cancelled_parent_is_cancelled_and_says_which(
        self, backend: Backend, state: JobState
    ) -> None:
        parent, _ = await bring_to(backend, state)
        child, anyway = await enqueue(backend, after(parent), after(parent, run_anyway=True))
        (details,) = await snapshot(backend, child)
        assert details.job.state is CANCELLED
        assert parent in (details.job.reason or "")
        assert await state_of(backend, anyway) is READY

    async def test_a_parent_in_each_unfinished_state_releases_its_child_at_its_end(self, backend: Backend) -> None:
        held = await hold_one(backend)
        (child,) = await enqueue(backend, after(held.id))
        (grandchild,) = await enqueue(backend, after(child))
        assert await states(backend, held.id, child, grandchild) == [RUNNING, BLOCKED, BLOCKED]
        assert await finish(backend, held.lease, Completed()) is Verdict.DONE
        assert await states(backend, held.id, child, grandchild) == [COMPLETED, READY, BLOCKED]
        assert await drain(backend) == [child, grandchild]

    async def test_a_parent_that_is_released_retried_or_rescued_keeps_its_children_waiting(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        held = await hold_one(backend)
        (child,) = await enqueue(backend, after(held.id))
        assert await backend.jobs.release([held.lease], started=True) == [Verdict.DONE]
        again = await claim_one(backend)
        assert await finish(backend, again.lease, OUTCOMES["retried"]) is Verdict.DONE
        clock.advance(timedelta(seconds=11))
        await backend.jobs.promote(MANY)
        await claim_one(backend)
        clock.advance(LEASE * 2)
        assert len(await backend.jobs.rescue(None, MANY)) == 1
        assert await state_of(backend, child) is BLOCKED
        assert await drain(backend) == [held.id, child]

    async def test_a_repeated_enqueue_of_a_family_changes_nothing(self, backend: Backend) -> None:
        parent = a_job()
        child = after(parent.id)
        await enqueue(backend, parent, child)
        assert await backend.jobs.enqueue([parent, child]) == [False, False]
        await complete_next(backend)
        assert await backend.jobs.enqueue([parent, child]) == [False, False]
        assert await drain(backend) == [child.id]
        assert await backend.jobs.enqueue([child]) == [False]
        assert await claim(backend) == []

    async def test_a_new_child_of_a_repeated_parent_waits_for_it(self, backend: Backend) -> None:
        parent = a_job()
        await enqueue(backend, parent)
        held = await claim_one(backend)
        child = after(parent.id)
        assert await backend.jobs.enqueue([parent, child]) == [False, True]
        assert await state_of(backend, child.id) is BLOCKED
        assert await finish(backend, held.lease, Completed()) is Verdict.DONE
        assert await drain(backend) == [child.id]

    async def test_an_unknown_parent_is_an_error_that_names_it_and_nothing_is_enqueued(self, backend: Backend) -> None:
        unknown, other = new_id(), a_job()
        with pytest.raises(JobNotFound, match=unknown):
            await backend.jobs.enqueue([other, after(unknown)])
        with pytest.raises(JobNotFound):
            await backend.insight.job(other.id)

    async def test_a_cycle_is_an_error_that_names_it_and_nothing_is_enqueued(self, backend: Backend) -> None:
        first, second, third = new_id(), new_id(), new_id()
        jobs = [after(third, job_id=first), after(first, job_id=second), after(second, job_id=third)]
        with pytest.raises(ConfigError, match=f"cycle: .*{second}"):
            await backend.jobs.enqueue(jobs)
        with pytest.raises(ConfigError, match=first):
            await backend.jobs.enqueue([after(first, job_id=first)])
        with pytest.raises(JobNotFound):
            await backend.insight.job(first)

    async def test_a_childs_time_is_waited_for_after_its_release(self, backend: Backend, clock: ManualClock) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, after(parent, delay=timedelta(minutes=1)))
        await complete_next(backend)
        assert await state_of(backend, child) is SCHEDULED
        clock.advance(timedelta(minutes=2))
        await backend.jobs.promote(MANY)
        assert await drain(backend) == [child]

    async def test_a_child_with_an_order_key_joins_it_when_its_parents_have_ended(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, after(parent, order_key="x"))
        head, second = await enqueue(backend, *(_keyed() for _ in range(2)))
        assert await states(backend, child, head, second) == [BLOCKED, READY, BLOCKED]
        await complete_next(backend)
        (last,) = await enqueue(backend, _keyed())
        assert await drain(backend) == [head, second, child, last]

    async def test_the_head_of_an_order_key_is_a_parent_like_others(self, backend: Backend) -> None:
        head, second = await enqueue(backend, _keyed(), _keyed())
        of_head, of_second = await enqueue(backend, after(head), after(second))
        assert await complete_next(backend) == head
        assert await states(backend, of_head, second, of_second) == [READY, READY, BLOCKED]
        assert set(await drain(backend, at_once=2)) == {of_head, second, of_second}

    async def test_a_parent_whose_only_child_is_not_inserted_is_a_job_like_others(self, backend: Backend) -> None:
        held = Unique("k")
        kept = NewJob(id=new_id(), queue="default", task="greet", payload="{}", conditions=Conditions(held))
        await enqueue(backend, kept)
        parent, other = a_job(), a_job()
        child = msgspec.structs.replace(after(parent.id), conditions=Conditions(held, after=(parent.id,)))
        second = after(other.id)
        assert await backend.jobs.enqueue([parent, child, other, second]) == [True, kept.id, True, True]
        assert await states(backend, parent.id, other.id, second.id) == [READY, READY, BLOCKED]
        assert set(await drain(backend)) == {kept.id, parent.id, other.id, second.id}

    async def test_waiting_children_are_blocked_in_lists_but_not_outstanding(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job(delay=timedelta(hours=1)))
        await enqueue(backend, after(parent), after(parent, order_key="x"))
        assert (await queue_view(backend, "default")).blocked == 2
        left = await backend.jobs.outstanding(["greet"], None)
        assert (left.is_empty, left.blocked, left.delayed) == (True, 0, 1)

    async def test_a_cancelled_child_leaves_the_others_waiting(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        first, second = await enqueue(backend, after(parent), after(parent, order_key="x"))
        assert await backend.jobs.cancel(first, "unwanted") is Cancellation.CANCELLED
        assert await states(backend, first, second) == [CANCELLED, BLOCKED]
        assert await drain(backend) == [parent, second]
        assert await state_of(backend, first) is CANCELLED


def _keyed() -> NewJob:
    return NewJob(id=new_id(), queue="default", task="greet", payload="{}", order_key="x")
