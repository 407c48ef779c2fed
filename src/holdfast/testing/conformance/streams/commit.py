"""Fetch, commit, verify, release: the life of a position under a grant."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.allocation import Grant, Share, ShareState
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    MANY,
    NODE_A,
    NODE_B,
    SHARE,
    StreamConformance,
    an_event,
    append,
    append_to,
    begin_consumer,
    commit,
    consuming,
    grant_to,
    granted,
    join,
    lose,
    needs_trims_of_unread,
    positions,
    revoke,
    share_view,
    snapshot,
    stream_in,
    surveyed,
)


class TestFetch(StreamConformance):
    """`ConsumerStore.fetch`."""

    async def test_it_returns_the_next_events_and_how_the_grant_stands(self, backend: Backend) -> None:
        await begin_consumer(backend)
        ids = await append_to(backend, *"abc")
        grant = await granted(backend)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert [event.id for event in fetched.events] == ids
        assert [event.position for event in fetched.events] == [1, 2, 3]
        assert (fetched.is_lost, fetched.state, fetched.position, fetched.head) == (
            False,
            ShareState.GRANTED,
            0,
            3,
        )
        assert (fetched.replay_until, fetched.losses, fetched.parked_streams, fetched.retries) == (
            0,
            0,
            frozenset(),
            (),
        )

    async def test_where_there_is_nothing_it_returns_no_events(self, backend: Backend) -> None:
        grant = await consuming(backend)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert (fetched.events, fetched.is_lost, fetched.head) == ([], False, 0)

    async def test_after_is_where_the_caller_has_read_to_before_or_behind_the_committed_position(
        self, backend: Backend
    ) -> None:
        grant = await consuming(backend, *"abcd")
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        for after, expected in ((0, [1, 2, 3, 4]), (2, [3, 4]), (3, [4]), (4, [])):
            fetched = await backend.streams.consumers.fetch(grant, after=after, limit=MANY)
            assert [event.position for event in fetched.events] == expected
            assert (fetched.position, fetched.head) == (2, 4)

    async def test_it_returns_at_most_limit_events(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abcde")
        fetched = await backend.streams.consumers.fetch(grant, after=1, limit=2)
        assert [event.position for event in fetched.events] == [2, 3]

    @pytest.mark.parametrize(("max_bytes", "expected"), [(1, 1), (100, 1), (199, 1), (200, 2), (350, 3), (9999, 5)])
    async def test_past_the_first_it_stops_before_the_payloads_exceed_max_bytes(
        self, backend: Backend, max_bytes: int, expected: int
    ) -> None:
        grant = await consuming(backend)
        await append(backend, *(an_event("a", payload=f'"{"ä" * 49}"') for _ in range(5)))  # 100 bytes each
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY, max_bytes=max_bytes)
        assert len(fetched.events) == expected

    async def test_a_revoked_share_is_reported_as_such_and_still_returns_events(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await revoke(backend, grant)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert (fetched.is_lost, fetched.state, len(fetched.events)) == (False, ShareState.REVOKING, 2)

    async def test_a_stale_grant_is_lost_and_gets_no_events(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, *"ab")
        await lose(backend, clock, grant)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert (fetched.is_lost, fetched.events, fetched.retries) == (True, [], ())

    async def test_a_share_that_does_not_exist_is_lost(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        for share in (Share("unknown", CATEGORY, 0), Share(CONSUMER, "nowhere", 0), Share(CONSUMER, CATEGORY, 9)):
            fetched = await backend.streams.consumers.fetch(Grant(share, 1), after=0, limit=MANY)
            assert (fetched.is_lost, fetched.events) == (True, [])

    @needs_trims_of_unread
    async def test_what_was_trimmed_is_passed_over(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, *"ab")
        clock.advance(1)
        await append_to(backend, "c")
        await backend.streams.events.trim(CATEGORY, older_than=timedelta(0), limit=MANY, past_unread=True)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert [event.position for event in fetched.events] == [3]
        assert await commit(backend, grant, 0, 3) is CommitVerdict.DONE


class TestCommit(StreamConformance):
    """`ConsumerStore.commit` and `verify`."""

    async def test_a_step_from_the_position_of_the_row_moves_it(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abcd")
        assert await backend.streams.consumers.verify(grant) == 0
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
        assert await commit(backend, grant, 1, 4) is CommitVerdict.DONE
        assert await backend.streams.consumers.verify(grant) == 4
        assert (await share_view(backend)).position == 4

    async def test_a_repeat_of_a_commit_that_was_written_is_done_again(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abcd")
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        before = await snapshot(backend)
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        assert await snapshot(backend) == before

    @pytest.mark.parametrize(("after", "position"), [(0, 1), (0, 3), (1, 3), (3, 4), (0, 4)])
    async def test_a_step_from_another_position_is_lost_and_writes_nothing(
        self, backend: Backend, after: int, position: int
    ) -> None:
        grant = await consuming(backend, *"abcd")
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        before = await snapshot(backend)
        assert await commit(backend, grant, after, position) is CommitVerdict.LOST
        assert await snapshot(backend) == before

    async def test_a_step_of_no_length_is_done_and_moves_nothing(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        assert await commit(backend, grant, 0, 0) is CommitVerdict.DONE
        assert await backend.streams.consumers.verify(grant) == 0

    async def test_the_owner_of_a_revoked_share_may_still_commit(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await revoke(backend, grant)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
        assert await backend.streams.consumers.verify(grant) == 1

    async def test_a_revoked_share_may_be_committed_past_its_deadline_until_it_is_seized(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        await revoke(backend, grant, drain=timedelta(seconds=1))
        clock.advance(60)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE

    async def test_a_silent_node_may_commit_until_its_share_is_seized(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        clock.advance(3600)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE

    async def test_of_two_steps_from_one_position_one_is_done(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abcd")
        verdicts = await asyncio.gather(*(commit(backend, grant, 0, position) for position in (1, 2, 3, 4)))
        assert sorted(verdicts) == [CommitVerdict.DONE] + [CommitVerdict.LOST] * 3
        assert await backend.streams.consumers.verify(grant) == 1 + verdicts.index(CommitVerdict.DONE)

    async def test_concurrent_repeats_of_one_step_are_all_answered_done(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abcd")
        verdicts = await asyncio.gather(*(commit(backend, grant, 0, 3) for _ in range(8)))
        assert set(verdicts) == {CommitVerdict.DONE}
        assert await backend.streams.consumers.verify(grant) == 3

    async def test_shares_are_committed_independently(self, backend: Backend) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, low, high, high, partitions=2)
        await begin_consumer(backend, consumer="shipping", partitions=2)
        await join(backend, NODE_A, NODE_B)
        first = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 0))
        second = await grant_to(backend, NODE_B, Share(CONSUMER, CATEGORY, 1))
        third = await grant_to(backend, NODE_A, Share("shipping", CATEGORY, 1))
        assert await commit(backend, first, 0, 2) is CommitVerdict.DONE
        assert await commit(backend, second, 0, 1) is CommitVerdict.DONE
        assert await commit(backend, third, 0, 2) is CommitVerdict.DONE
        assert await positions(backend) == {(CATEGORY, 0): 2, (CATEGORY, 1): 1}
        assert await positions(backend, "shipping") == {(CATEGORY, 0): 0, (CATEGORY, 1): 2}

    async def test_a_share_that_does_not_exist_is_lost(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        for share in (Share("unknown", CATEGORY, 0), Share(CONSUMER, "nowhere", 0), Share(CONSUMER, CATEGORY, 9)):
            assert await commit(backend, Grant(share, 1), 0, 1) is CommitVerdict.LOST
            assert await backend.streams.consumers.verify(Grant(share, 1)) is None

    async def test_the_next_owner_begins_where_the_last_one_committed(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"abcd")
        await commit(backend, grant, 0, 3)
        await lose(backend, clock, grant)
        successor = await granted(backend, NODE_B)
        fetched = await backend.streams.consumers.fetch(successor, after=3, limit=MANY)
        assert (fetched.position, [event.position for event in fetched.events]) == (3, [4])
        assert await commit(backend, successor, 3, 4) is CommitVerdict.DONE


class TestShareRelease(StreamConformance):
    """`ConsumerStore.release`."""

    @pytest.mark.parametrize("is_revoked", [False, True])
    async def test_a_released_share_is_free_with_its_position_generation_and_target(
        self, backend: Backend, is_revoked: bool
    ) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 1)
        if is_revoked:
            await revoke(backend, grant, target="node-b")
        assert await backend.streams.consumers.release(grant)
        free = await surveyed(backend)
        assert (free.state, free.generation, free.owner) == (ShareState.FREE, grant.generation, None)
        assert free.target == ("node-b" if is_revoked else None)
        assert (await share_view(backend)).position == 1

    async def test_after_it_the_grant_is_stale(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        assert await backend.streams.consumers.release(grant)
        before = await snapshot(backend)
        assert not await backend.streams.consumers.release(grant)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.LOST
        assert await backend.streams.consumers.verify(grant) is None
        assert (await backend.streams.consumers.fetch(grant, after=0, limit=MANY)).is_lost
        assert await snapshot(backend) == before

    async def test_granted_again_it_has_a_larger_generation_even_for_the_same_node(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        assert await backend.streams.consumers.release(grant)
        again = await grant_to(backend, NODE_A, SHARE)
        assert again.generation == grant.generation + 1
        assert await commit(backend, grant, 0, 1) is CommitVerdict.LOST
        assert await commit(backend, again, 0, 1) is CommitVerdict.DONE
