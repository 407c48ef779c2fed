"""Of two verbs on one thing at once, one waits or neither minds: what comes out is what one after the other would give.

Each pair is run with the one stopped after each of its statements, and before its commit, while the other runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.postgres.stepping import OWN_IDS, Arena, Operation, Verbs, open_arena

from holdfast.backends.postgres.verbs import share_locks
from holdfast.model.allocation import GrantTo, Revoke, Seize, SeizeReason, Share
from holdfast.model.event import NewEvent
from holdfast.store.stream_values import Commit, Park, StartAt, Unpark
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    DRAIN,
    FAILURE,
    GONE,
    GRACE,
    LEADER,
    NODE_A,
    NODE_B,
    REJOINED_A,
    SHARE,
    TIMING,
    a_node,
    begin_consumer,
    granted,
    join,
    lead,
    stream_in,
)
from holdfast.testing.stores import open_store

ID = OWN_IDS + "0000-7000-8000-00000000000{}"
LOW, HIGH = stream_in(0, 2), stream_in(1, 2)


@pytest.fixture
async def arena(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Arena]:
    clock = ManualClock()
    for wait in ("_WAIT", "_WAIT_TO_JOIN"):  # here it is waited to the end, however slow the machine is
        monkeypatch.setattr(share_locks, wait, 20_000)
    async with open_store(url, clock=clock) as backend, open_arena(backend, url, clock) as arena:  # type: ignore[arg-type]
        yield arena


# --- what there is before ---------------------------------------------------------------------------------------------


async def nothing(arena: Arena) -> None:
    """No category yet."""


async def partitions(arena: Arena) -> None:
    """Two partitions, each with an event."""
    await arena.backend.streams.events.open_category(CATEGORY, 2)
    for number, stream in enumerate((LOW, HIGH)):
        await arena.backend.streams.events.append([_event(stream, 8 + number)])


async def old_partitions(arena: Arena) -> None:
    """The same, some time ago."""
    await partitions(arena)
    arena.clock.advance(10)


async def owned(arena: Arena) -> Any:
    """A share that is granted; the leader leads, and another node is there."""
    await begin_consumer(arena.backend, *"abab", partitions=1)
    grant = await granted(arena.backend, NODE_A)
    await join(arena.backend, NODE_B)
    return grant, await lead(arena.backend)


async def owned_by_the_silent(arena: Arena) -> Any:
    """The same, long ago; the leader leads still."""
    given = await owned(arena)
    arena.clock.advance(GONE)
    return given


async def led_long_ago(arena: Arena) -> Any:
    """A free share, a node for it, and a leader whose lease is over."""
    await begin_consumer(arena.backend, *"ab", partitions=1)
    await join(arena.backend, NODE_A)
    leadership = await lead(arena.backend, LEADER, timedelta(seconds=1))
    arena.clock.advance(2)
    return None, leadership


async def with_parked(arena: Arena) -> Any:
    """A granted share whose first event is parked."""
    grant, leadership = await owned(arena)
    await arena.backend.streams.consumers.commit(grant, Commit(0, 1, parks=(Park(1, "a", FAILURE, 1),)))
    return grant, leadership


async def with_retries(arena: Arena) -> Any:
    """The same, and a person has asked to retry it."""
    given = await with_parked(arena)
    await arena.backend.streams.consumers.retry_parked(CONSUMER)
    return given


async def paused_and_silent(arena: Arena) -> Any:
    """A paused consumer whose share a node holds that does not report."""
    given = await owned_by_the_silent(arena)
    await arena.backend.streams.consumers.pause(CONSUMER)
    return given


# --- verbs ------------------------------------------------------------------------------------------------------------


def _event(stream: str, number: int, expected: int | None = None) -> NewEvent:
    return NewEvent(ID.format(number), CATEGORY, stream, "placed", "{}", None, expected)


def append(*streams: str, first: int = 1, expected: int | None = None) -> Operation:
    events = [_event(stream, first + number, None if number else expected) for number, stream in enumerate(streams)]
    return lambda verbs, _: verbs.events.append(events)


def committing(after: int, position: int, **rest: Any) -> Operation:
    return lambda verbs, given: verbs.consumers.commit(given[0], Commit(after, position, **rest))


def allocating(reason: SeizeReason | None = None) -> Operation:
    async def run(verbs: Verbs, given: Any) -> Any:
        grant, leadership = given
        generation = 0 if grant is None else grant.generation
        if reason is not None:
            moves = [Seize(SHARE, generation, reason), GrantTo(SHARE, generation + 1, NODE_B)]
        elif grant is None:
            moves = [GrantTo(SHARE, generation, NODE_A)]
        else:
            moves = [Revoke(SHARE, generation, DRAIN, "node-b")]
        return await verbs.allocations.move_shares(leadership, moves, grace=GRACE)

    return run


async def usurping(verbs: Verbs, _: Any) -> Any:
    return await verbs.allocations.lead(NODE_B, timedelta(hours=1))


async def coming_back(verbs: Verbs, _: Any) -> Any:
    return await verbs.allocations.join(a_node(REJOINED_A))


async def sending_heartbeat(verbs: Verbs, _: Any) -> Any:
    return await verbs.allocations.heartbeat(NODE_A, TIMING)


async def leaving(verbs: Verbs, _: Any) -> Any:
    return await verbs.allocations.leave(NODE_A)


async def draining(verbs: Verbs, _: Any) -> Any:
    return await verbs.allocations.drain(NODE_A)


async def pausing(verbs: Verbs, _: Any) -> Any:
    return await verbs.consumers.pause(CONSUMER)


async def releasing(verbs: Verbs, given: Any) -> Any:
    return await verbs.consumers.release(given[0])


async def dropping(verbs: Verbs, _: Any) -> Any:
    return await verbs.consumers.drop_parked(CONSUMER)


async def retrying(verbs: Verbs, _: Any) -> Any:
    return await verbs.consumers.retry_parked(CONSUMER)


async def resetting(verbs: Verbs, _: Any) -> Any:
    return await verbs.consumers.reset(CONSUMER, StartAt.BEGINNING)


async def forgetting(verbs: Verbs, _: Any) -> Any:
    return await verbs.consumers.forget(CONSUMER)


async def trimming(verbs: Verbs, _: Any) -> Any:
    return await verbs.events.trim(CATEGORY, older_than=timedelta(seconds=5), limit=10)


behind = committing(1, 3, parks=(Park(3, "a"),))
failing = committing(1, 2, parks=(Park(2, "b", FAILURE, 1),))
again = committing(1, 1, unparks=(Unpark(1, FAILURE, 1),))
SILENT, REPLACED = SeizeReason.SILENT, SeizeReason.REPLACED

PAIRS = {
    "append-append": (partitions, append(LOW, LOW), append(LOW, first=3)),
    "append-append expecting": (partitions, append(LOW, expected=1), append(LOW, first=3, expected=1)),
    "append-append of one id": (partitions, append(LOW, HIGH), append(LOW, HIGH)),
    "append-append crosswise": (partitions, append(LOW, HIGH), append(HIGH, LOW, first=3)),
    "append-append to a new category": (nothing, append("a", "b"), append("a", first=3)),
    "append-append to a new category, expecting": (nothing, append("a", expected=0), append("a", first=3, expected=0)),
    "append-trim": (old_partitions, append(LOW, HIGH), trimming),
    "commit-seize": (owned_by_the_silent, committing(0, 2), allocating(SILENT)),
    "park-seize": (owned_by_the_silent, committing(0, 2, parks=(Park(1, "a", FAILURE),)), allocating(SILENT)),
    "commit-revoke": (owned, committing(0, 2), allocating()),
    "commit-join": (owned, committing(0, 2), coming_back),
    "commit-leave": (owned, committing(0, 2), leaving),
    "commit-release": (owned, committing(0, 2), releasing),
    "commit-commit": (owned, committing(0, 2), committing(0, 1)),
    "seize-heartbeat": (owned_by_the_silent, allocating(SILENT), sending_heartbeat),
    "seize-join": (owned_by_the_silent, allocating(SILENT), coming_back),
    "seize-release": (owned_by_the_silent, allocating(SILENT), releasing),
    "revoke-join": (owned, allocating(), coming_back),
    "grant-usurp": (led_long_ago, allocating(), usurping),
    "grant-join": (led_long_ago, allocating(), coming_back),
    "grant-leave": (led_long_ago, allocating(), leaving),
    "grant-drain": (led_long_ago, allocating(), draining),
    "grant-pause": (led_long_ago, allocating(), pausing),
    "park behind-drop": (with_parked, behind, dropping),
    "park behind-retry": (with_parked, behind, retrying),
    "park behind-retry again": (with_retries, behind, retrying),
    "park-drop": (with_parked, failing, dropping),
    "fail again-retry": (with_retries, again, retrying),
    "fail again-drop": (with_retries, again, dropping),
    "reset-commit": (paused_and_silent, resetting, committing(0, 2)),
    "reset-park": (paused_and_silent, resetting, committing(0, 2, parks=(Park(2, "b", FAILURE),))),
    "reset-join": (paused_and_silent, resetting, coming_back),
    "reset-seize": (paused_and_silent, resetting, allocating(SILENT)),
    "forget-commit": (paused_and_silent, forgetting, committing(0, 2)),
}


# Tried with each change; `make test-slow` tries all, and stops either verb.
USUAL = {
    *(
        "append-append crosswise",
        "append-append of one id",
        "append-trim",
        "commit-seize",
        "park-seize",
        "commit-revoke",
    ),
    *("commit-join", "seize-heartbeat", "seize-join", "grant-usurp", "park behind-drop", "reset-commit"),
}


def _both(pairs: dict[str, Any]) -> list[Any]:
    """Return each pair twice: the one is stopped, or the other."""
    ways = []
    for name, (setup, one, other) in pairs.items():
        ways += [
            pytest.param(setup, one, other, id=name, marks=() if name in USUAL else pytest.mark.slow),
            pytest.param(setup, other, one, id=f"{name}, the latter stopped", marks=pytest.mark.slow),
        ]
    return ways


@pytest.mark.parametrize(("setup", "stopped", "other"), _both(PAIRS))
async def test_two_verbs_at_once_come_to_what_one_after_the_other_does(
    arena: Arena, setup: Any, stopped: Operation, other: Operation
):
    one, two, state = await arena.serially(setup, stopped, other)
    two_first, one_last, other_state = await arena.serially(setup, other, stopped)
    serial = [(one, two, state), (one_last, two_first, other_state)]

    after = 0
    while (outcome := await arena.stopped(setup, stopped, other, after=after)) is not None:
        assert outcome in serial, f"stopped after {after} steps"
        after += 1
    assert after > 0


@pytest.mark.parametrize(
    ("setup", "stopped", "other"),
    [
        pytest.param(partitions, append(LOW, HIGH), append(HIGH, LOW, first=3, expected=1), id="append"),
        pytest.param(partitions, append(LOW, HIGH), append(LOW, HIGH), id="append of the same ids"),
        pytest.param(nothing, append("a", "b"), append("a", first=3, expected=0), id="append to a new category"),
        pytest.param(owned_by_the_silent, committing(0, 2), allocating(SILENT), id="commit"),
        pytest.param(owned_by_the_silent, allocating(SILENT), committing(0, 2), id="seize"),
        pytest.param(with_parked, dropping, behind, id="drop"),
        pytest.param(with_parked, behind, dropping, id="park"),
    ],
)
async def test_what_is_rolled_back_leaves_the_other_as_if_it_were_alone(
    arena: Arena, setup: Any, stopped: Operation, other: Operation
):
    alone, state = await arena.serially(setup, other)

    after = 0
    while (outcome := await arena.stopped(setup, stopped, other, after=after, commits=False)) is not None:
        assert outcome[1:] == (alone, state), f"stopped after {after} steps"
        after += 1
    assert after > 1


async def test_a_stale_leader_who_waits_between_fence_and_commit_is_waited_for(arena: Arena):
    """And one who comes later than the usurper does nothing."""
    outcome = await arena.stopped(led_long_ago, allocating(), usurping, after=1)
    assert outcome is not None
    done, leadership, _ = outcome
    assert (done, leadership.epoch) == ([True], 2)

    outcome = await arena.stopped(led_long_ago, allocating(), usurping, after=0)
    assert outcome is not None
    done, leadership, _ = outcome
    assert (done, leadership.epoch) == (None, 2)


async def test_a_revocation_passes_by_a_handler_that_has_its_transaction_open(arena: Arena):
    grant, leadership = await owned(arena)
    async with arena.backend.streams.consumers.begin(grant, limit=timedelta(seconds=20)) as transaction:
        async with open_store(arena.url, clock=arena.clock) as other:
            moves = [Revoke(SHARE, grant.generation, DRAIN)]
            assert await other.streams.allocations.move_shares(leadership, moves, grace=GRACE) == [True]
        assert await transaction.commit(grant, Commit(0, 1)) == "done"
    assert await arena.backend.streams.consumers.verify(grant) == 1


async def test_grants_of_several_shares_in_opposite_order_do_not_deadlock(arena: Arena):
    async def free(arena: Arena) -> Any:
        await begin_consumer(arena.backend, partitions=2)
        await join(arena.backend, NODE_A, NODE_B)
        return await lead(arena.backend)

    def granting(*shares: Share) -> Operation:
        return lambda verbs, given: verbs.allocations.move_shares(
            given, [GrantTo(s, 0, NODE_A) for s in shares], grace=GRACE
        )

    low, high = Share(CONSUMER, CATEGORY, 0), Share(CONSUMER, CATEGORY, 1)
    for after in range(8):
        outcome = await arena.stopped(free, granting(low, high), granting(high, low), after=after)
        assert outcome is None or sorted(outcome[:2]) == [[False, False], [True, True]]
