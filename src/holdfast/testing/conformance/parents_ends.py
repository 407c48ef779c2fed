"""Jobs whose parents fail or are cancelled, retried, pruned or deleted; large families."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import ClassVar

import msgspec
import pytest

from holdfast.errors import UniqueConflict
from holdfast.model.conditions import UniqueScope
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, Retention, Verdict
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
    snapshot,
    state_of,
)
from holdfast.testing.conformance.order_keys import states
from holdfast.testing.conformance.parents import after, complete_next, drain
from holdfast.testing.conformance.unique import HOUR, unique

READY, BLOCKED, CANCELLED, FAILED = JobState.READY, JobState.BLOCKED, JobState.CANCELLED, JobState.FAILED
COMPLETED = JobState.COMPLETED
DAY = timedelta(days=1)


async def chain(backend: Backend, length: int) -> list[str]:
    """Enqueue jobs of which each waits for the one before, in one call; return their ids."""
    ids = [new_id() for _ in range(length)]
    followers = [after(parent, job_id=child) for parent, child in pairwise(ids)]
    return await enqueue(backend, a_job(job_id=ids[0]), *followers)


def unique_child(parent: str, key: str = "k", scope: UniqueScope = UniqueScope.UNFINISHED) -> NewJob:
    """Return a job with a unique key that waits for this parent."""
    job = unique(key, scope)
    assert job.conditions is not None
    return msgspec.structs.replace(job, conditions=msgspec.structs.replace(job.conditions, after=(parent,)))


async def reason_for(backend: Backend, job_id: str) -> str:
    """Return why a job was cancelled."""
    (details,) = await snapshot(backend, job_id)
    return details.job.reason or ""


class TestBrokenParents(Conformance):
    """A parent that failed or was cancelled, and its retry."""

    @pytest.mark.parametrize("outcome", ["failed", "cancelled"])
    async def test_all_descendants_of_a_broken_parent_are_cancelled_and_name_their_own(
        self, backend: Backend, outcome: str
    ) -> None:
        first, second, third = await chain(backend, 3)
        job = await claim_one(backend)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        assert await states(backend, second, third) == [CANCELLED, CANCELLED]
        assert first in await reason_for(backend, second)
        assert second in await reason_for(backend, third)
        assert await claim(backend) == []

    async def test_a_child_is_cancelled_as_soon_as_one_parent_is_broken(self, backend: Backend) -> None:
        parents = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(*parents))
        assert await backend.jobs.cancel(parents[1], "unwanted") is Cancellation.CANCELLED
        assert await state_of(backend, child) is CANCELLED
        assert parents[1] in await reason_for(backend, child)
        await complete_next(backend)
        assert await state_of(backend, child) is CANCELLED

    async def test_a_child_that_runs_anyway_waits_for_the_end_of_all(self, backend: Backend) -> None:
        parents = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(*parents, run_anyway=True))
        first, second = await claim(backend)
        assert await finish(backend, first.lease, OUTCOMES["failed"]) is Verdict.DONE
        assert await state_of(backend, child) is BLOCKED
        assert await finish(backend, second.lease, OUTCOMES["cancelled"]) is Verdict.DONE
        assert await state_of(backend, child) is READY

    async def test_a_parent_that_is_lost_too_often_breaks_its_children(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (parent,) = await enqueue(backend, a_job(max_attempts=1))
        (child,) = await enqueue(backend, after(parent))
        while await state_of(backend, parent) is not FAILED:
            assert await state_of(backend, child) is BLOCKED
            await claim_one(backend)
            clock.advance(LEASE * 2)
            assert len(await backend.jobs.rescue(None, MANY)) == 1
        assert await state_of(backend, child) is CANCELLED

    async def test_retrying_the_parent_lets_its_descendants_wait_again(self, backend: Backend) -> None:
        first, second, third = await chain(backend, 3)
        job = await claim_one(backend)
        assert await finish(backend, job.lease, OUTCOMES["failed"]) is Verdict.DONE
        assert await backend.jobs.retry(first) is True
        assert await states(backend, first, second, third) == [READY, BLOCKED, BLOCKED]
        assert await drain(backend) == [first, second, third]

    async def test_a_parent_that_fails_again_breaks_its_children_again(self, backend: Backend) -> None:
        first, second = await chain(backend, 2)
        for _ in range(2):
            job = await claim_one(backend)
            assert job.id == first
            assert await finish(backend, job.lease, OUTCOMES["failed"]) is Verdict.DONE
            assert await state_of(backend, second) is CANCELLED
            assert await backend.jobs.retry(first) is True

    async def test_a_child_with_another_broken_parent_stays_cancelled(self, backend: Backend) -> None:
        parents = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(*parents))
        for job in await claim(backend):
            assert await finish(backend, job.lease, OUTCOMES["failed"]) is Verdict.DONE
        assert await backend.jobs.retry(parents[0]) is True
        assert await state_of(backend, child) is CANCELLED
        assert await backend.jobs.retry(parents[1]) is True
        assert await state_of(backend, child) is BLOCKED

    async def test_a_child_that_a_person_cancelled_is_not_revived(self, backend: Backend) -> None:
        first, second = await chain(backend, 2)
        assert await backend.jobs.cancel(second, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.cancel(first, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.retry(first) is True
        assert await drain(backend) == [first]
        assert await state_of(backend, second) is CANCELLED

    async def test_a_retried_child_waits_for_parents_that_have_not_ended(self, backend: Backend) -> None:
        first, second = await chain(backend, 2)
        assert await backend.jobs.cancel(second, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.retry(second) is True
        assert await states(backend, first, second) == [READY, BLOCKED]
        assert await drain(backend) == [first, second]

    async def test_a_retried_child_runs_if_all_parents_have_ended_in_whatever_way(self, backend: Backend) -> None:
        first, second, third = await chain(backend, 3)
        assert await backend.jobs.cancel(first, "unwanted") is Cancellation.CANCELLED
        assert await states(backend, second, third) == [CANCELLED, CANCELLED]
        assert await backend.jobs.retry(second) is True
        assert await states(backend, first, second, third) == [CANCELLED, READY, BLOCKED]
        assert await drain(backend) == [second, third]

    async def test_a_retried_child_with_a_broken_and_an_unfinished_parent_is_cancelled_again(
        self, backend: Backend
    ) -> None:
        broken, unfinished = await enqueue(backend, a_job(), a_job())
        (child,) = await enqueue(backend, after(broken, unfinished))
        assert await backend.jobs.cancel(broken, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.retry(child) is True
        assert await state_of(backend, child) is CANCELLED

    async def test_cancelling_many_at_once_cancels_their_descendants(self, backend: Backend) -> None:
        first = await chain(backend, 3)
        second = await chain(backend, 3)
        await backend.jobs.cancel_all([first[0], second[1]], "unwanted")
        assert await states(backend, *first, *second) == [CANCELLED] * 3 + [READY] + [CANCELLED] * 2


class TestRevivedChildren(Conformance):
    """Children that were cancelled because of a parent, with a unique key or an order key, after the parent's retry."""

    async def test_a_revived_child_has_its_unique_key_again(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, unique_child(parent))
        assert await backend.jobs.cancel(parent, "unwanted") is Cancellation.CANCELLED
        (other,) = await enqueue(backend, unique())
        assert await backend.jobs.cancel(other, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.retry(parent) is True
        assert await states(backend, parent, child) == [READY, BLOCKED]
        assert await backend.jobs.enqueue([unique()]) == [child]
        with pytest.raises(UniqueConflict, match=child):
            await backend.jobs.retry(other)

    async def test_a_child_stays_cancelled_if_another_job_holds_its_unique_key(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, unique_child(parent))
        (grandchild,) = await enqueue(backend, after(child))
        (plain,) = await enqueue(backend, after(parent))
        assert await backend.jobs.cancel(parent, "unwanted") is Cancellation.CANCELLED
        (other,) = await enqueue(backend, unique())
        assert await backend.jobs.retry(parent) is True
        assert await states(backend, parent, child, grandchild, plain) == [READY, CANCELLED, CANCELLED, BLOCKED]
        assert other in await reason_for(backend, child)
        assert set(await drain(backend)) == {parent, other, plain}
        assert await state_of(backend, child) is CANCELLED
        assert await backend.jobs.retry(child) is True
        assert await drain(backend) == [child, grandchild]

    async def test_of_two_cancelled_children_with_one_unique_key_one_is_revived(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        assert await backend.jobs.cancel(parent, "unwanted") is Cancellation.CANCELLED
        (first,) = await enqueue(backend, unique_child(parent))
        (second,) = await enqueue(backend, unique_child(parent))
        (third,) = await enqueue(backend, unique_child(parent, "other"))
        assert await states(backend, first, second, third) == [CANCELLED] * 3
        assert await backend.jobs.retry(parent) is True
        assert await states(backend, first, second, third) == [BLOCKED, CANCELLED, BLOCKED]
        assert first in await reason_for(backend, second)
        assert await drain(backend) == [parent, first, third]

    async def test_a_key_held_for_a_period_does_not_keep_a_child_cancelled(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, unique_child(parent, scope=UniqueScope.PERIOD))
        assert await backend.jobs.cancel(parent, "unwanted") is Cancellation.CANCELLED
        clock.advance(HOUR)
        (other,) = await enqueue(backend, unique(scope=UniqueScope.PERIOD))
        assert await backend.jobs.retry(parent) is True
        assert await state_of(backend, child) is BLOCKED
        assert await backend.jobs.enqueue([unique(scope=UniqueScope.PERIOD)]) == [other]

    async def test_a_revived_child_joins_its_order_key_at_the_end(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        children = await enqueue(backend, *(after(parent, order_key=key) for key in ("y", "x", "x")))
        assert await backend.jobs.cancel(parent, "unwanted") is Cancellation.CANCELLED
        assert await states(backend, *children) == [CANCELLED] * 3
        (head,) = await enqueue(backend, msgspec.structs.replace(a_job(), order_key="x"))
        assert await backend.jobs.retry(parent) is True
        assert await states(backend, head, *children) == [READY] + [BLOCKED] * 3
        jobs = await claim(backend)
        assert {job.id for job in jobs} == {head, parent}
        assert set(await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])) == {Verdict.DONE}
        assert await states(backend, *children) == [READY, READY, BLOCKED]
        assert await drain(backend, at_once=1) == children


class TestKeptParents(Conformance):
    """`JobStore.prune` and `JobStore.delete` of parents and children."""

    async def test_parents_of_jobs_that_have_not_ended_are_not_pruned(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        old, _ = await bring_to(backend, COMPLETED)
        broken, _ = await bring_to(backend, FAILED)
        (slow,) = await enqueue(backend, a_job(delay=DAY * 10))
        (child,) = await enqueue(backend, after(old, broken, slow, run_anyway=True))
        plain, _ = await bring_to(backend, COMPLETED)
        clock.advance(DAY * 5)
        retention = Retention(DAY, DAY, DAY, None)
        assert await backend.jobs.prune(retention, 1) == 1
        assert await backend.jobs.prune(retention, MANY) == 0
        assert await states(backend, old, broken, child) == [COMPLETED, FAILED, BLOCKED]
        assert await backend.insight.states([plain]) == []
        clock.advance(DAY * 6)
        await backend.jobs.promote(MANY)
        assert await drain(backend) == [slow, child]
        clock.advance(DAY * 2)
        assert await backend.jobs.prune(retention, MANY) == 4
        assert await backend.insight.states([old, broken, slow, child]) == []

    async def test_the_others_of_a_batch_are_pruned_although_one_is_kept(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(4)))
        (slow,) = await enqueue(backend, a_job(delay=DAY * 10))
        (child,) = await enqueue(backend, after(ids[1], ids[3], slow))
        jobs = await claim(backend)
        assert set(await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])) == {Verdict.DONE}
        clock.advance(DAY * 5)
        retention = Retention(DAY, DAY, DAY, None)
        pruned = [await backend.jobs.prune(retention, MANY) for _ in range(2)]
        assert sum(pruned) == 2
        assert {job.id for job in await backend.insight.states(ids)} == {ids[1], ids[3]}
        clock.advance(DAY * 6)
        await backend.jobs.promote(MANY)
        assert await drain(backend) == [slow, child]
        clock.advance(DAY * 2)
        assert await backend.jobs.prune(retention, MANY) == 4

    async def test_a_person_cannot_delete_a_parent_of_a_job_that_has_not_ended(self, backend: Backend) -> None:
        old, _ = await bring_to(backend, COMPLETED)
        other, _ = await bring_to(backend, COMPLETED)
        (slow,) = await enqueue(backend, a_job(delay=DAY))
        (child,) = await enqueue(backend, after(old, slow))
        nothing = timedelta(0)
        assert await backend.jobs.delete([old, other], FINAL_STATES, nothing) == {old: COMPLETED, other: None}
        assert await backend.jobs.cancel(child, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.delete([child, old], FINAL_STATES, nothing) == {child: None, old: None}

    async def test_the_id_of_a_deleted_child_is_free(self, backend: Backend) -> None:
        (parent,) = await enqueue(backend, a_job())
        child = after(parent)
        await enqueue(backend, child)
        await drain(backend)
        await backend.jobs.delete([child.id], FINAL_STATES, timedelta(0))
        await enqueue(backend, child)
        assert await state_of(backend, child.id) is READY

    async def test_a_job_with_the_id_of_a_deleted_parent_revives_no_child(self, backend: Backend) -> None:
        first, second = await chain(backend, 2)
        assert await backend.jobs.cancel(first, "unwanted") is Cancellation.CANCELLED
        assert await backend.jobs.delete([first], FINAL_STATES, timedelta(0)) == {first: None}
        await enqueue(backend, a_job(job_id=first))
        assert await drain(backend) == [first]
        assert await state_of(backend, second) is CANCELLED


class TestParentsInTransactions(Conformance):
    """Parents that end inside a handler's transaction."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    @pytest.mark.parametrize("end", ["completed", "cancelled"])
    async def test_children_are_decided_after_the_commit_and_not_inside(self, backend: Backend, end: str) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, after(parent))
        job = await claim_one(backend)
        (other,) = await enqueue(backend, a_job(delay=DAY))
        (cancelled,) = await enqueue(backend, after(other))
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            if end == "cancelled":
                assert await backend.jobs.cancel(other, "unwanted") is Cancellation.CANCELLED
                assert await state_of(backend, cancelled) is BLOCKED
            else:
                await transaction.complete(job.lease, None)
            assert transaction.concerns_children
        await backend.jobs.promote(MANY)
        expected = [BLOCKED, CANCELLED] if end == "cancelled" else [READY, BLOCKED]
        assert await states(backend, child, cancelled) == expected

    async def test_without_children_nothing_is_to_be_decided(self, backend: Backend) -> None:
        await enqueue(backend, a_job())
        job = await claim_one(backend)
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            await transaction.complete(job.lease, None)
            assert not transaction.concerns_children


class TestLargeFamilies(Conformance):
    """Many jobs of one family."""

    async def test_a_parent_of_many_releases_all(self, backend: Backend) -> None:
        parent = new_id()
        children = [after(parent) for _ in range(1_200)]
        await enqueue(backend, a_job(job_id=parent), *children)
        await complete_next(backend)
        assert set(await drain(backend)) == {child.id for child in children}

    async def test_the_end_of_a_long_chain_is_cancelled_with_its_begin(self, backend: Backend) -> None:
        ids = await chain(backend, 40)
        assert await backend.jobs.cancel(ids[0], "unwanted") is Cancellation.CANCELLED
        assert set(await states(backend, *ids)) == {CANCELLED}
        assert await backend.jobs.retry(ids[0]) is True
        assert await states(backend, *ids) == [READY] + [BLOCKED] * 39

    async def test_a_family_of_layers_drains_in_order(self, backend: Backend) -> None:
        layers = [[new_id() for _ in range(10)] for _ in range(4)]
        jobs = [a_job(job_id=job_id) for job_id in layers[0]]
        for above, layer in pairwise(layers):
            jobs += [after(*above, job_id=job_id) for job_id in layer]
        await enqueue(backend, *jobs)
        done = await drain(backend, at_once=3)
        assert [set(done[start : start + 10]) for start in range(0, 40, 10)] == [set(layer) for layer in layers]
