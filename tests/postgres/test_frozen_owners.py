"""Owners of shares, leaders and appenders that stand still in the middle of a transaction; and all through a pooler."""

# ruff: noqa: S608 - the names in statements are our own

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres.standing_still import Watch, every_standing, frozen, in_a_copy, in_a_pipeline, soon
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, parts_of

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.postgres.blockers import Blockers
from holdfast.errors import StoreUnavailable
from holdfast.model.allocation import Grant, GrantTo, Leadership, NodeKey, Seize, SeizeReason, Share, Timing
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    NODE_A,
    NODE_B,
    a_node,
    an_event,
    begin_consumer,
    lead,
    surveyed,
)
from holdfast.testing.stores import open_store

LONG = timedelta(seconds=60)
LEASE = timedelta(seconds=1)
FAST = Timing.for_recovery(2)
SLOW = Timing.for_recovery(60)  # no transaction of a test is open for so long
REBORN_A = NodeKey("node-a", "life-2")


# --- shares -----------------------------------------------------------------------------------------------------------


async def _join(backend: Backend, *nodes: Any, timing: Timing = FAST) -> None:
    for node in nodes:
        await backend.streams.allocations.join(a_node(node, timing=timing))


async def _two_shares(backend: Backend, timing: Timing = FAST) -> tuple[Grant, Grant, Leadership]:
    """Grant two shares to a node that will not report again."""
    await begin_consumer(backend, partitions=2)
    await _join(backend, NODE_A, NODE_B, timing=timing)
    leadership = await lead(backend)
    first, second = (Share(CONSUMER, CATEGORY, number) for number in range(2))
    moves = [GrantTo(share, (await surveyed(backend, share)).generation, NODE_A) for share in (first, second)]
    assert await backend.streams.allocations.move_shares(leadership, moves, grace=FAST.grace) == [True, True]
    return Grant(first, moves[0].generation + 1), Grant(second, moves[1].generation + 1), leadership


def _seizure(grant: Grant) -> Seize:
    return Seize(grant.share, grant.generation, SeizeReason.SILENT)


async def _silent(backend: Backend, watch: Watch) -> None:
    """Wait until the node counts as silent."""
    text = f"select heartbeat_at + ttl from {watch.schema}.node where node_id = 'node-a'"
    ((until,),) = watch.execute(text)
    ((now,),) = watch.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    await asyncio.sleep((until - now) / 1_000_000 + FAST.grace.total_seconds() + 0.05)


@every_standing
async def test_a_share_is_seized_from_a_silent_node_that_stands_still_in_its_transaction(
    backend: Backend, watch: Watch, how: str
):
    grant, other, leadership = await _two_shares(backend)
    allocations = backend.streams.allocations
    opened = backend.streams.consumers.begin_blocking(grant, limit=LONG)
    with frozen(opened, how, watch) as pid:
        # Another lock on the same row makes a group of the two transactions, of which one goes on.
        watch.execute(f"select 1 from {watch.schema}.allocation for key share")
        await _silent(backend, watch)
        began = time.monotonic()
        moves = [_seizure(grant), _seizure(other)]
        first = await allocations.move_shares(leadership, moves, grace=FAST.grace)
        assert time.monotonic() - began < 2.0
        assert first is not None
        assert first[1], "the share that is free does not wait for the one that is locked"
        if not first[0]:  # the session was ended, and had not yet gone
            assert await soon(lambda: allocations.move_shares(leadership, moves[:1], grace=FAST.grace)) == [True]
        assert watch.stands(pid) is None


async def test_a_share_that_is_locked_within_its_right_holds_up_no_other(backend: Backend, watch: Watch):
    grant, other, leadership = await _two_shares(backend, SLOW)
    allocations = backend.streams.allocations
    watch.execute(f"update {watch.schema}.node set heartbeat_at = heartbeat_at - 2 * ttl where node_id = 'node-a'")
    with frozen(backend.streams.consumers.begin_blocking(grant, limit=LONG), "pipeline", watch) as pid:
        done = await allocations.move_shares(leadership, [_seizure(grant), _seizure(other)], grace=SLOW.grace)
        assert done == [False, True]
        assert watch.stands(pid) is not None
        await allocations.heartbeat(NODE_B, SLOW)
        again = await surveyed(backend, other.share)
        moves = [_seizure(grant), GrantTo(other.share, again.generation, NODE_B)]
        assert await allocations.move_shares(leadership, moves, grace=SLOW.grace) == [False, True]


async def test_a_node_that_comes_back_while_its_former_process_stands_still_gets_its_shares(
    backend: Backend, watch: Watch
):
    grant, _, _ = await _two_shares(backend)
    opened = backend.streams.consumers.begin_blocking(grant, limit=LONG)
    with frozen(opened, "pipeline", watch) as pid:
        await asyncio.sleep(FAST.ttl.total_seconds())

        async def joined() -> bool:
            with suppress(StoreUnavailable):
                await _join(backend, REBORN_A)
                return True
            return False

        assert await soon(joined)
        assert watch.stands(pid) is None
    assert (await surveyed(backend, grant.share)).owner is None


@pytest.mark.parametrize("table", ["node", "consumer"])
async def test_a_row_of_a_node_or_a_consumer_that_is_locked_holds_up_only_what_needs_it(
    backend: Backend, watch: Watch, url: str, table: str
):
    grant, _, leadership = await _two_shares(backend)
    allocations = backend.streams.allocations
    await begin_consumer(backend, consumer="other", category="others")
    await _join(backend, NODE_B)
    free = await surveyed(backend, Share("other", "others", 0))
    await _silent(backend, watch)
    await allocations.heartbeat(NODE_B, FAST)
    moves = [_seizure(grant), GrantTo(free.share, free.generation, NODE_B)]
    with psycopg.connect(parts_of(url)[0]) as locker:
        name = "node_id = 'node-a'" if table == "node" else f"consumer = '{CONSUMER}'"
        locker.execute(f"select 1 from {watch.schema}.{table} where {name} for update".encode())
        assert await allocations.move_shares(leadership, moves, grace=FAST.grace) == [False, True]
    assert await allocations.move_shares(leadership, moves[:1], grace=FAST.grace) == [True]


# --- verbs that stand still -------------------------------------------------------------------------------------------


def _impatient(backend: Backend) -> Blockers:
    assert isinstance(backend, PostgresBackend)
    return Blockers(backend._parts.here.runner, pause=timedelta(seconds=0.3), least=timedelta(seconds=1))


async def _ended(backend: Backend, watch: Watch, pid: int) -> None:
    blockers = _impatient(backend)

    async def look() -> bool:
        await blockers.end_stuck()
        return watch.stands(pid) is None

    await soon(look)


async def _pid(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


async def test_a_leader_that_stands_still_in_the_middle_of_its_moves_is_ended_and_followed(
    backend: Backend, watch: Watch, url: str
):
    await lead(backend, lease=timedelta(seconds=0.2))
    with psycopg.connect(parts_of(url)[0]) as leader:
        leader.execute(f"select 1 from {watch.schema}.leadership for share".encode())
        pid = await _pid(leader)
        in_a_pipeline(leader)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await backend.streams.allocations.lead(NODE_B, LONG)
        assert time.monotonic() - began < 5.0
        await _ended(backend, watch, pid)
        assert await backend.streams.allocations.lead(NODE_B, LONG) is not None
        leader.pgconn.finish()


async def test_an_append_that_stands_still_is_ended_when_another_has_waited_for_its_partition(
    backend: Backend, watch: Watch, url: str
):
    await backend.streams.events.open_category(CATEGORY, 1)
    with psycopg.connect(parts_of(url)[0]) as half_sent:
        half_sent.execute(f"select 1 from {watch.schema}.head for update".encode())
        pid = await _pid(half_sent)
        in_a_pipeline(half_sent)
        waiting = asyncio.create_task(backend.streams.events.append([an_event()]))
        await _ended(backend, watch, pid)
        (appended,) = await waiting
        assert appended.is_new
        half_sent.pgconn.finish()


async def test_a_stuck_session_that_keeps_nobody_waiting_is_left_alone(backend: Backend, watch: Watch, url: str):
    await backend.streams.events.open_category(CATEGORY, 1)
    blockers = _impatient(backend)
    with psycopg.connect(parts_of(url)[0]) as caller:
        caller.execute(f"select 1 from {watch.schema}.head for update".encode())
        pid = await _pid(caller)
        in_a_copy(caller)
        for _ in range(4):
            await asyncio.sleep(0.4)
            await blockers.end_stuck()
        assert watch.stands(pid) == ("active", "ClientRead")
        caller.pgconn.finish()


# --- through a pooler -------------------------------------------------------------------------------------------------


@every_standing
async def test_all_of_it_works_through_a_transaction_pooler(
    backend: Backend, watch: Watch, url: str, tmp_path: Path, how: str
):
    await enqueue(backend, a_job())
    grant, other, leadership = await _two_shares(backend)
    try:
        with pooled(url, tmp_path) as through:
            async with open_store(through) as pooled_backend:
                (job,) = await claim(pooled_backend, lease=LEASE)
                opened = pooled_backend.transactions.begin_blocking(job.lease, limit=LONG)
                with frozen(opened, how, watch) as pid:
                    (rescued,) = await soon(lambda: pooled_backend.jobs.rescue(None, MANY))
                    assert rescued.job_id == job.id
                    assert watch.stands(pid) is None
                allocations = pooled_backend.streams.allocations
                opened_share = pooled_backend.streams.consumers.begin_blocking(grant, limit=LONG)
                with frozen(opened_share, how, watch):
                    await _silent(backend, watch)

                    async def seized() -> bool:
                        done = await allocations.move_shares(leadership, [_seizure(grant)], grace=FAST.grace)
                        return bool(done and done[0])

                    assert await soon(seized)
    except NoServerError as error:
        give_up("PgBouncer", str(error))
    assert (await surveyed(backend, other.share)).owner == NODE_A
