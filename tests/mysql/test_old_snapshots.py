"""Verbs that join a transaction whose snapshot is older than what others have committed, as under repeatable read.

Each decision is made on what is committed now, and no lock makes others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pymysql
import pytest
from tests.mysql.test_using import place

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.backend import open_backend as open_mysql
from holdfast.errors import VersionConflict
from holdfast.model.conditions import OnConflict, UniqueScope
from holdfast.model.event import NewEvent, partition_of
from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import a_job, claim, claim_one, enqueue, finish, state_of
from holdfast.testing.conformance.key_limits import keyed as limited
from holdfast.testing.conformance.order_keys import keyed
from holdfast.testing.conformance.parents import after
from holdfast.testing.conformance.unique import unique

WAITING, UNFINISHED, _ = UniqueScope
READY, BLOCKED = JobState.READY, JobState.BLOCKED


@pytest.fixture
def caller(url: str) -> Iterator[Any]:
    """A connection whose snapshot is taken now."""
    connection = pymysql.connect(**place(url), ssl_disabled=True)
    with connection.cursor() as cursor:
        cursor.execute("set session transaction isolation level repeatable read")
        cursor.execute("start transaction with consistent snapshot")
    yield connection
    connection.close()


def event(stream: str = "order-1", **fields: Any) -> NewEvent:
    return NewEvent(id=new_id(), category="orders", stream=stream, name="paid", payload="{}", **fields)


async def complete(backend: MysqlBackend, caller: Any, lease: Any) -> None:
    assert await asyncio.to_thread(lambda: backend.complete(lease, None, using=caller)) is Verdict.DONE
    caller.commit()


async def run(backend: MysqlBackend) -> None:
    job = await claim_one(backend)
    assert await finish(backend, job.lease, Completed()) is Verdict.DONE


class TestUniqueKeys:
    """Unique keys."""

    async def test_a_job_that_was_enqueued_since_the_snapshot_keeps_its_key(self, backend: MysqlBackend, caller: Any):
        (first,) = await enqueue(backend, unique())
        assert await backend.join(caller).enqueue([unique()]) == [first]
        caller.commit()
        assert len(await claim(backend)) == 1

    async def test_a_job_that_has_ended_since_the_snapshot_frees_its_key(self, backend: MysqlBackend, url: str):
        await enqueue(backend, unique())
        caller = pymysql.connect(**place(url), ssl_disabled=True)
        with caller.cursor() as cursor:
            cursor.execute("start transaction with consistent snapshot")
        await run(backend)
        assert await backend.join(caller).enqueue([unique()]) == [True]
        caller.commit()
        caller.close()
        assert len(await claim(backend)) == 1

    @pytest.mark.parametrize("scope", [WAITING, UNFINISHED])
    async def test_a_job_that_has_started_since_the_snapshot(
        self, backend: MysqlBackend, caller: Any, scope: UniqueScope
    ):
        (first,) = await enqueue(backend, unique(scope=scope))
        await claim_one(backend)
        assert await backend.join(caller).enqueue([unique(scope=scope)]) == [True if scope is WAITING else first]
        caller.commit()

    async def test_what_the_transaction_has_written_itself_counts(self, backend: MysqlBackend, caller: Any):
        mine = unique()
        joined = backend.join(caller)
        assert await joined.enqueue([mine]) == [True]
        assert await joined.enqueue([mine]) == [False]
        assert await joined.enqueue([unique()]) == [mine.id]
        caller.commit()
        assert len(await claim(backend)) == 1

    async def test_a_job_that_the_transaction_completes_frees_its_key(self, backend: MysqlBackend, caller: Any):
        await enqueue(backend, unique())
        job = await claim_one(backend)
        assert await asyncio.to_thread(lambda: backend.complete(job.lease, None, using=caller)) is Verdict.DONE
        assert await backend.join(caller).enqueue([unique()]) == [True]
        caller.commit()
        assert len(await claim(backend)) == 1

    async def test_a_waiting_job_that_was_enqueued_since_gets_the_new_arguments(
        self, backend: MysqlBackend, caller: Any
    ):
        (first,) = await enqueue(backend, unique())
        replacing = unique(on_conflict=OnConflict.REPLACE, payload='{"a":1}')
        assert await backend.join(caller).enqueue([replacing]) == [first]
        caller.commit()
        assert (await backend.insight.job(first)).payload == '{"a":1}'

    @pytest.mark.parametrize("is_held", [False, True], ids=["free", "held"])
    async def test_nothing_else_waits(self, backend: MysqlBackend, caller: Any, is_held: bool):
        await enqueue(backend, *([unique("m")] if is_held else []), a_job())
        await backend.join(caller).enqueue([unique("m"), a_job()])
        async with asyncio.timeout(5):
            await enqueue(backend, a_job(), unique("a"), unique("l"), unique("z"), keyed())
            for job in await claim(backend):
                assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        caller.rollback()

    async def test_an_enqueue_whose_id_was_taken_since_is_known(self, backend: MysqlBackend, caller: Any):
        known, new = a_job(), a_job()
        await enqueue(backend, known)
        assert await backend.join(caller).enqueue([known, new]) == [False, True]
        async with asyncio.timeout(5):
            await enqueue(backend, a_job(), a_job())
        caller.commit()
        assert len(await claim(backend)) == 4


class TestAppends:
    """Appends."""

    async def test_versions_and_ids_since_the_snapshot_are_known(self, backend: MysqlBackend, caller: Any):
        known = event()
        await backend.streams.events.append([known, event()])
        joined = backend.streams.join(caller)
        new = event()
        again, next_one = await joined.append([known, new])
        (repeated,) = await joined.append([new])
        assert (again.is_new, again.version) == (False, 1)
        assert (next_one.is_new, next_one.version) == (True, 3)
        assert (repeated.is_new, repeated.version) == (False, 3)
        caller.commit()
        assert len(await backend.streams.events.read_stream("orders", "order-1", limit=9)) == 3

    async def test_an_expected_version_is_compared_with_the_last_one_of_all(self, backend: MysqlBackend, caller: Any):
        await backend.streams.events.append([event()])
        joined = backend.streams.join(caller)
        with pytest.raises(VersionConflict):
            await joined.append([event(expected_version=0)])
        (appended,) = await joined.append([event(expected_version=1)])
        assert appended.version == 2

    async def test_other_partitions_and_categories_do_not_wait(self, backend: MysqlBackend, caller: Any):
        await backend.streams.events.open_category("orders", 64)
        await backend.streams.events.append([event("order-5")])
        (mine,) = await backend.streams.join(caller).append([event("order-5")])
        async with asyncio.timeout(5):
            for number in range(1, 10):
                other = event(f"order-5{number}")
                await backend.streams.events.append([msgspec.structs.replace(other, category="others")])
            others = [event(f"order-{number}") for number in range(60)]
            free = [other for other in others if partition_of(other.stream, 64) != mine.partition_id]
            await backend.streams.events.append(free)
        assert len(free) > 50
        caller.rollback()

    async def test_a_category_that_was_made_since_the_snapshot(self, backend: MysqlBackend, caller: Any):
        await backend.streams.events.open_category("orders", 3)
        (appended,) = await backend.streams.join(caller).append([event()])
        assert appended.version == 1


class TestCompletions:
    """Completions."""

    async def test_of_a_lease_that_is_gone_makes_no_claim_wait(self, backend: MysqlBackend, caller: Any):
        await enqueue(backend, a_job())
        stale = await claim_one(backend)
        await backend.jobs.release([stale.lease], started=True)
        lost = await asyncio.to_thread(lambda: backend.complete(stale.lease, None, using=caller))
        assert lost is Verdict.LOST
        async with asyncio.timeout(5):
            await enqueue(backend, a_job())
            for job in await claim(backend):
                assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        caller.rollback()

    @pytest.mark.parametrize("other", ["1", "4", "9"])
    async def test_of_the_last_job_of_an_order_key_makes_no_other_key_wait(
        self, backend: MysqlBackend, caller: Any, other: str
    ):
        await enqueue(backend, keyed("1"), keyed("5"), keyed("9"))
        lease = (await claim(backend))[1].lease
        assert await asyncio.to_thread(lambda: backend.complete(lease, None, using=caller)) is Verdict.DONE
        async with asyncio.timeout(5):
            await enqueue(backend, keyed(other), keyed(other), a_job())
        caller.rollback()

    async def test_of_two_jobs_of_an_order_key_in_one_transaction(self, backend: MysqlBackend, caller: Any):
        """The second and the third are enqueued after the snapshot, and the fourth by the transaction itself."""
        ids = await enqueue(backend, keyed(), keyed(), keyed())
        mine = keyed()
        assert await backend.join(caller).enqueue([mine]) == [True]
        await complete(backend, caller, (await claim_one(backend)).lease)
        for following in [*ids[1:], mine.id]:
            job = await claim_one(backend)
            assert job.id == following
            assert await finish(backend, job.lease, Completed()) is Verdict.DONE

    async def test_a_waiting_job_that_was_cancelled_since_the_snapshot_is_passed_over(
        self, backend: MysqlBackend, url: str
    ):
        _, second, third = await enqueue(backend, keyed(), keyed(), keyed())
        caller = pymysql.connect(**place(url), ssl_disabled=True)
        with caller.cursor() as cursor:
            cursor.execute("start transaction with consistent snapshot")
        await backend.jobs.cancel(second, "no longer wanted")
        await complete(backend, caller, (await claim_one(backend)).lease)
        caller.close()
        assert await state_of(backend, third) is READY


class TestKeysAndParents:
    """Order keys, limit keys and parents."""

    async def test_the_next_job_of_an_order_key_that_was_enqueued_since_the_snapshot_follows(
        self, backend: MysqlBackend, caller: Any
    ):
        _, second = await enqueue(backend, keyed(), keyed())
        job = await claim_one(backend)
        await complete(backend, caller, job.lease)
        assert await state_of(backend, second) is READY

    async def test_a_job_joins_an_order_key_as_it_is_now(self, backend: MysqlBackend, caller: Any):
        await enqueue(backend, keyed())
        mine = keyed()
        assert await backend.join(caller).enqueue([mine]) == [True]
        caller.commit()
        assert await state_of(backend, mine.id) is BLOCKED
        await run(backend)
        assert await state_of(backend, mine.id) is READY

    async def test_a_new_order_key_makes_no_other_wait(self, backend: MysqlBackend, caller: Any):
        assert await backend.join(caller).enqueue([keyed("m")]) == [True]
        async with asyncio.timeout(5):
            await enqueue(backend, keyed("a"), keyed("l"), keyed("z"))
            await run(backend)
        caller.rollback()

    async def test_a_job_that_waits_for_a_slot_since_the_snapshot_gets_it(self, backend: MysqlBackend, url: str):
        await backend.queues.limit(LimitKey("key", "greet"), Limit(running=1))
        await enqueue(backend, limited())
        caller = pymysql.connect(**place(url), ssl_disabled=True)
        with caller.cursor() as cursor:
            cursor.execute("start transaction with consistent snapshot")
        (second,) = await enqueue(backend, limited())
        job = await claim_one(backend)
        await complete(backend, caller, job.lease)
        caller.close()
        await backend.jobs.promote(100)
        assert await state_of(backend, second) is READY

    async def test_a_child_that_was_enqueued_since_the_snapshot_is_released(self, backend: MysqlBackend, caller: Any):
        first, keyed_one = await enqueue(backend, a_job(), keyed())
        children = await enqueue(backend, after(first), after(keyed_one))
        for job in await claim(backend):
            assert await asyncio.to_thread(lambda lease: backend.complete(lease, None, using=caller), job.lease)
        caller.commit()
        await backend.jobs.promote(100)
        assert [await state_of(backend, child) for child in children] == [READY, READY]

    @pytest.mark.parametrize("state", ["ready", "running", "ended"])
    async def test_a_child_follows_a_parent_that_was_enqueued_since_the_snapshot(
        self, backend: MysqlBackend, caller: Any, state: str
    ):
        (parent,) = await enqueue(backend, a_job())
        job = None if state == "ready" else await claim_one(backend)
        if state == "ended" and job is not None:
            assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        child = after(parent)
        assert await backend.join(caller).enqueue([child]) == [True]
        caller.commit()
        job = job or await claim_one(backend)
        if state != "ended":
            assert await state_of(backend, child.id) is BLOCKED
            assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        assert await state_of(backend, child.id) is READY

    async def test_a_child_of_a_waiting_job_makes_no_other_wait(self, backend: MysqlBackend, caller: Any):
        (parent, *_) = await enqueue(backend, a_job("elsewhere"), a_job(), a_job())
        assert await backend.join(caller).enqueue([after(parent)]) == [True]
        async with asyncio.timeout(5):
            await enqueue(backend, a_job(), a_job("elsewhere"), keyed())
            for job in await claim(backend, queues=["default"]):
                assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        caller.rollback()


async def test_a_handlers_transaction_with_an_old_snapshot_decides_by_what_is_committed(
    backend: MysqlBackend, url: str
):
    await enqueue(backend, keyed())
    job = await claim_one(backend)
    others = open_mysql(url)
    await others.open()
    limit = timedelta(seconds=30)
    async with backend.transactions.begin(job.lease, limit=limit, isolation="repeatable read") as transaction:
        await transaction.connection.execute("select * from holdfast_job")
        second, held = await enqueue(others, keyed(), unique())
        assert await backend.jobs.enqueue([unique()]) == [held]
        assert await transaction.complete(job.lease, None) is Verdict.DONE
    await others.close()
    assert await state_of(backend, second) is READY
