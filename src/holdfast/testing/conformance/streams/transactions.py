"""Transactions: effect and position commit together or not at all."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

import pytest

from holdfast.errors import ConfigError, JobNotFound, LeaseLost, TransactionExpired, VersionConflict
from holdfast.model.allocation import ShareState
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict, Park
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import EffectTable, MakeBackend, a_job, hold_one
from holdfast.testing.conformance.base import state_of as job_state_of
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    FAILURE,
    GONE,
    SHARE,
    StreamConformance,
    an_event,
    append,
    append_to,
    commit,
    consuming,
    lose,
    needs_joins,
    parked,
    read,
    seize,
    share_view,
    snapshot,
    state_of,
)

LIMIT = timedelta(seconds=10)
STEP = Commit(0, 1)


class StreamHandlerError(Exception):
    """Raised by a handler in the middle of its transaction."""


class TestStreamAsync(StreamConformance):
    """`ConsumerStore.begin`."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    async def test_effect_and_position_commit_together(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        grant = await consuming(backend, *"ab")
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, "effect")
            assert await transaction.commit(grant, STEP) is CommitVerdict.DONE
        assert await effects.count("effect") == 1
        assert await backend.streams.consumers.verify(grant) == 1

    async def test_leaving_it_normally_commits_the_effect_alone_if_no_position_was_written(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        grant = await consuming(backend, "a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, "effect")
        assert await effects.count("effect") == 1
        assert await backend.streams.consumers.verify(grant) == 0

    async def test_leaving_it_by_an_exception_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        grant = await consuming(backend, *"ab")
        before = await snapshot(backend)
        with pytest.raises(StreamHandlerError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, "effect")
                step = Commit(0, 2, parks=(Park(1, "a", FAILURE),))
                assert await backend.streams.consumers.commit(grant, step) is CommitVerdict.DONE
                raise StreamHandlerError
        assert await effects.count("effect") == 0
        assert await snapshot(backend) == before

    async def test_a_handler_that_is_cancelled_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        grant = await consuming(backend, "a")
        inside = asyncio.Event()

        async def handler() -> None:
            async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, "effect")
                await backend.streams.consumers.commit(grant, STEP)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(handler())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await effects.count("effect") == 0
        assert await backend.streams.consumers.verify(grant) == 0

    async def test_it_raises_lease_lost_at_once_if_the_grant_is_stale(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        await lose(backend, clock, grant)
        with pytest.raises(LeaseLost):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                pytest.fail("the body must not run")

    async def test_it_raises_lease_lost_for_a_share_that_was_released(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        assert await backend.streams.consumers.release(grant)
        with pytest.raises(LeaseLost):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                pytest.fail("the body must not run")

    async def test_a_wrong_step_is_reported_and_the_handler_rolls_back(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        grant = await consuming(backend, *"abc")
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        with pytest.raises(StreamHandlerError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, "effect")
                assert await transaction.commit(grant, STEP) is CommitVerdict.LOST
                raise StreamHandlerError
        assert await effects.count("effect") == 0
        assert await backend.streams.consumers.verify(grant) == 2

    async def test_a_handler_that_receives_unparked_rolls_back_and_may_run_again(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        grant = await consuming(backend, *"ab")
        with pytest.raises(StreamHandlerError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, "effect")
                step = Commit(0, 1, parks=(Park(1, "a"),))
                assert await transaction.commit(grant, step) is CommitVerdict.UNPARKED
                raise StreamHandlerError
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, "effect")
            assert await transaction.commit(grant, STEP) is CommitVerdict.DONE
        assert (await effects.count("effect"), await parked(backend)) == (1, [])

    async def test_after_limit_it_is_rolled_back_and_any_use_raises_transaction_expired(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        grant = await consuming(backend, "a")
        with pytest.raises(TransactionExpired):
            async with backend.streams.consumers.begin(grant, limit=timedelta(milliseconds=50)) as transaction:
                await effects.insert(transaction.connection, "effect")
                async with asyncio.timeout(10):
                    while True:
                        await effects.insert(transaction.connection, "effect")
                        await asyncio.sleep(0.01)
        assert await effects.count("effect") == 0
        assert await backend.streams.consumers.verify(grant) == 0

    async def test_an_owner_keeps_its_share_while_the_transaction_is_open_however_long_its_node_is_silent(
        self, backend: Backend, effects: EffectTable, clock: ManualClock
    ) -> None:
        await effects.create()
        grant = await consuming(backend, "a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, "effect")
            clock.advance(GONE)
            assert await transaction.commit(grant, STEP) is CommitVerdict.DONE
        assert (await effects.count("effect"), await backend.streams.consumers.verify(grant)) == (1, 1)


@needs_joins
class TestJoined(StreamConformance):
    """Store calls from the task that has a transaction open join it."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    async def test_a_commit_joins_it(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        with pytest.raises(StreamHandlerError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
                raise StreamHandlerError
        assert await backend.streams.consumers.verify(grant) == 0
        async with backend.streams.consumers.begin(grant, limit=LIMIT):
            assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
        assert await backend.streams.consumers.verify(grant) == 1

    async def test_jobs_enqueued_and_events_appended_inside_are_there_when_it_commits(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        job, event = a_job(), an_event("b")
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([job]) == [True]
            await append(backend, event)
            assert await transaction.commit(grant, STEP) is CommitVerdict.DONE
        assert await job_state_of(backend, job.id) is JobState.READY
        assert [stored.id for stored in await read(backend, after=1)] == [event.id]

    async def test_jobs_enqueued_and_events_appended_inside_are_rolled_back_with_it(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        job = a_job()
        with pytest.raises(StreamHandlerError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                assert await backend.jobs.enqueue([job]) == [True]
                await append_to(backend, "b")
                raise StreamHandlerError
        with pytest.raises(JobNotFound):
            await backend.insight.job(job.id)
        assert len(await read(backend)) == 1

    async def test_a_version_conflict_inside_it_lets_the_handler_decide_again(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            with pytest.raises(VersionConflict):
                await backend.streams.events.append([an_event("b"), an_event("a", expected_version=0)])
            await append(backend, an_event("a", expected_version=1))
            assert await transaction.commit(grant, STEP) is CommitVerdict.DONE
        assert [event.stream for event in await read(backend)] == ["a", "a"]

    async def test_it_reads_its_own_appends(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT):
            await append_to(backend, "a")
            assert await backend.streams.events.stream_version(CATEGORY, "a") == 2
            assert len(await read(backend)) == 2

    async def test_events_appended_in_the_transaction_of_a_job_commit_with_it(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        job = await hold_one(backend)
        with pytest.raises(StreamHandlerError):
            async with backend.transactions.begin(job.lease, limit=LIMIT):
                await append_to(backend, "dropped")
                raise StreamHandlerError
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await append_to(backend, "kept")
            await transaction.complete(job.lease, None)
        assert [(event.position, event.stream) for event in await read(backend)] == [(1, "kept")]


class TestStreamBlocking(StreamConformance):
    """`ConsumerStore.begin_blocking`: the same for a handler in a thread."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    async def test_effect_and_position_commit_together_in_a_thread(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        grant = await consuming(backend, *"ab")

        def handler() -> None:
            with backend.streams.consumers.begin_blocking(grant, limit=LIMIT) as transaction:
                effects.insert_blocking(transaction.connection, "effect")
                assert transaction.commit(grant, STEP) is CommitVerdict.DONE

        await asyncio.to_thread(handler)
        assert await effects.count("effect") == 1
        assert await backend.streams.consumers.verify(grant) == 1

    async def test_an_exception_in_a_thread_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        grant = await consuming(backend, *"ab")

        def handler() -> None:
            with backend.streams.consumers.begin_blocking(grant, limit=LIMIT) as transaction:
                effects.insert_blocking(transaction.connection, "effect")
                assert transaction.commit(grant, STEP) is CommitVerdict.DONE
                raise StreamHandlerError

        with pytest.raises(StreamHandlerError):
            await asyncio.to_thread(handler)
        assert await effects.count("effect") == 0
        assert await backend.streams.consumers.verify(grant) == 0

    async def test_a_stale_grant_raises_lease_lost_in_a_thread(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        await lose(backend, clock, grant)

        def handler() -> None:
            with backend.streams.consumers.begin_blocking(grant, limit=LIMIT):
                pytest.fail("the body must not run")

        with pytest.raises(LeaseLost):
            await asyncio.to_thread(handler)

    async def test_a_wrong_step_is_reported_in_a_thread(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")

        def handler() -> None:
            with backend.streams.consumers.begin_blocking(grant, limit=LIMIT) as transaction:
                assert transaction.commit(grant, Commit(1, 2)) is CommitVerdict.LOST

        await asyncio.to_thread(handler)
        assert await backend.streams.consumers.verify(grant) == 0


@needs_joins
class TestStreamShared(StreamConformance):
    """The caller's own connection and transaction, with concurrent callers."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions", "shared"})

    @pytest.mark.parametrize("commits", [True, False])
    async def test_events_and_jobs_in_the_callers_own_transaction_share_its_end(
        self, backend: Backend, effects: EffectTable, commits: bool
    ) -> None:
        await effects.create()
        await backend.streams.events.open_category(CATEGORY, 1)
        job, event = a_job(), an_event("a")
        with effects.connect() as connection:
            (place,) = await backend.streams.join(connection).append([event])
            assert (place.position, place.is_new) == (1, True)
            assert await backend.transactions.join(connection).enqueue([job]) == [True]
            effects.insert_blocking(connection, "effect")
            (connection.commit if commits else connection.rollback)()
        assert [stored.id for stored in await read(backend)] == ([event.id] if commits else [])
        assert await effects.count("effect") == (1 if commits else 0)
        if commits:
            assert await job_state_of(backend, job.id) is JobState.READY
        else:
            with pytest.raises(JobNotFound):
                await backend.insight.job(job.id)

    async def test_a_joined_store_reads_what_it_has_appended(self, backend: Backend, effects: EffectTable) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        with effects.connect() as connection:
            joined = backend.streams.join(connection)
            await joined.append([an_event("a")])
            with pytest.raises(VersionConflict):
                await joined.append([an_event("a", expected_version=0)])
            assert await joined.stream_version(CATEGORY, "a") == 1
            assert len(await joined.read(CATEGORY, 0, after=0, limit=9)) == 1
            assert await read(backend) == []
            connection.commit()
        assert len(await read(backend)) == 1

    async def test_a_connection_outside_a_transaction_is_refused(self, backend: Backend, effects: EffectTable) -> None:
        with effects.connect() as connection:
            connection.rollback()
            with pytest.raises(ConfigError):
                backend.streams.join(connection)

    async def test_verify_waits_for_a_transaction_in_flight_that_touches_the_share(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        grant = await consuming(backend, "a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT):
            assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
            verifying = asyncio.create_task(other.streams.consumers.verify(grant))
            done, _ = await asyncio.wait([verifying], timeout=0.2)
            assert not done
        assert await verifying == 1

    async def test_a_seizure_waits_for_a_transaction_that_has_committed_a_position_inside(
        self, backend: Backend, make_backend: MakeBackend, effects: EffectTable, clock: ManualClock
    ) -> None:
        await effects.create()
        other = await make_backend()
        grant = await consuming(backend, *"ab")
        clock.advance(GONE)
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, "effect")
            assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
            seizing = asyncio.create_task(seize(other, grant))
            await asyncio.wait([seizing], timeout=0.2)
        await seizing
        view = await share_view(backend, SHARE)
        assert (view.position, view.state) == (1, ShareState.FREE)
        assert await effects.count("effect") == 1

    async def test_uncommitted_writes_are_invisible_to_others(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        grant = await consuming(backend, *"ab")
        async with backend.streams.consumers.begin(grant, limit=LIMIT):
            step = Commit(0, 2, parks=(Park(2, "b", FAILURE),))
            assert await backend.streams.consumers.commit(grant, step) is CommitVerdict.DONE
            assert (await share_view(other)).position == 0
            assert await parked(other, CONSUMER) == []
            assert await state_of(other) is ShareState.GRANTED
        assert (await share_view(other)).position == 2
        assert len(await parked(other, CONSUMER)) == 1
