"""Clients that stand still in the middle of a transaction: what they have locked is free once their limit has passed.

The clients here are connections of the test itself that do not go on: to the server that is what a frozen process is.
Processes that are really stopped: see `test_frozen_processes.py`.
"""

# ruff: noqa: PT012, S608 - what a transaction raises is raised out of its block; names in statements are our own

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import Context, copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from holdfast.backends.postgres.verbs.extend import extend_many
from psycopg.pq import TransactionStatus
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, parts_of

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.sql.steps import rows
from holdfast.errors import HoldfastError, StoreUnavailable, TransactionExpired
from holdfast.model.allocation import Grant, GrantTo, Leadership, Seize, SeizeReason, Share, Timing
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.steps import Steps
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue, state_of
from holdfast.testing.conformance.order_keys import keyed
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    NODE_A,
    NODE_B,
    a_node,
    allotted,
    an_event,
    begin_consumer,
    lead,
)
from holdfast.testing.stores import open_store

T = TypeVar("T")
LONG = timedelta(seconds=60)
LEASE = timedelta(seconds=1)
SOON = 10.0
FAST = Timing.for_recovery(2)
REPLIES = "select repeat('x', 1000000) from generate_series(1, 100)"


# --- clients that stand still -----------------------------------------------------------------------------------------


def _in_a_pipeline(connection: psycopg.Connection[Any]) -> None:
    connection.pgconn.enter_pipeline_mode()
    connection.pgconn.send_query_params(b"select 1", None)
    connection.pgconn.flush()


def _in_a_copy(connection: psycopg.Connection[Any]) -> None:
    connection.execute("create temporary table noise (n integer) on commit drop")
    connection.pgconn.exec_(b"copy noise from stdin")
    connection.pgconn.put_copy_data(b"1\n" * 10_000)
    connection.pgconn.flush()


def _in_a_statement(connection: psycopg.Connection[Any]) -> None:
    os.write(connection.pgconn.socket, b"Q\x00\x00\x10\x00select 'the rest of this was never sent")


def _in_an_answer(connection: psycopg.Connection[Any]) -> None:
    connection.pgconn.send_query(REPLIES.encode())
    connection.pgconn.flush()


def _between_statements(connection: psycopg.Connection[Any]) -> None:
    assert connection.pgconn.transaction_status == TransactionStatus.INTRANS


STANDING: dict[str, tuple[Callable[[psycopg.Connection[Any]], None], tuple[str, str]]] = {
    "pipeline": (_in_a_pipeline, ("active", "ClientRead")),
    "copy": (_in_a_copy, ("active", "ClientRead")),
    "half_sent": (_in_a_statement, ("idle in transaction", "ClientRead")),
    "unread": (_in_an_answer, ("active", "ClientWrite")),
    "idle": (_between_statements, ("idle in transaction", "ClientRead")),
}
every_standing = pytest.mark.parametrize(
    "how", [how if how == "pipeline" else pytest.param(how, marks=pytest.mark.slow) for how in STANDING]
)


class Watch:
    """A connection that looks at the server from outside."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self.schema = schema

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def stands(self, pid: int) -> tuple[str, str] | None:
        found = self.execute(f"select state, wait_event from pg_stat_activity where pid = {pid}")
        return found[0] if found else None


@pytest.fixture
def watch(backend: Backend, url: str) -> Iterator[Watch]:
    server, schema = parts_of(url)
    with psycopg.connect(server, autocommit=True, application_name="watch") as connection:
        yield Watch(connection, schema)


@contextmanager
def _frozen(opened: AbstractContextManager[Any], how: str, watch: Watch) -> Iterator[int]:
    """Open a transaction and stand still in it; return the number of its session."""
    stack, elsewhere = ExitStack(), copy_context()  # what the test calls meanwhile does not join it
    connection: psycopg.Connection[Any] = elsewhere.run(stack.enter_context, opened).connection
    row = connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    stand, seen = STANDING[how]
    stand(connection)
    try:
        _now(lambda: watch.stands(row[0]) == seen, f"the session stands as {seen}, not {watch.stands(row[0])}")
        yield row[0]
    finally:
        connection.pgconn.finish()
        with suppress(HoldfastError, psycopg.Error):
            elsewhere.run(stack.close)


def _now(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SOON
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


async def _soon(ask: Callable[[], Awaitable[T]], *, within: float = SOON) -> T:
    """Ask until the answer is something, as those do who recover."""
    deadline = time.monotonic() + within
    while not (found := await ask()):
        assert time.monotonic() < deadline, "nothing was recovered"
        await asyncio.sleep(0.05)
    return found


# --- jobs -------------------------------------------------------------------------------------------------------------


@every_standing
async def test_an_expired_lease_is_taken_from_a_client_that_stands_still(
    backend: Backend, watch: Watch, how: str, caplog: pytest.LogCaptureFixture
):
    (job_id,) = await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    with _frozen(backend.transactions.begin_blocking(job.lease, limit=LONG), how, watch) as pid:
        (rescued,) = await _soon(lambda: backend.jobs.rescue(None, MANY))
        assert watch.stands(pid) is None
    assert rescued.job_id == job_id
    assert await state_of(backend, job_id) is JobState.READY
    assert f"ended session {pid}" in caplog.text


@every_standing
async def test_an_expired_lease_is_taken_from_a_callers_own_transaction_that_stands_still(
    backend: Backend, watch: Watch, url: str, how: str
):
    (job_id,) = await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    with psycopg.connect(parts_of(url)[0]) as connection:
        connection.execute("select 1")
        with connection.transaction():  # a savepoint: its number is another than that of the transaction
            assert backend.transactions.complete(job.lease, None, using=connection) is Verdict.DONE
        STANDING[how][0](connection)
        (rescued,) = await _soon(lambda: backend.jobs.rescue(None, MANY))
        connection.pgconn.finish()
    assert rescued.job_id == job_id


async def test_while_one_stands_still_within_its_right_the_leases_of_others_are_taken(backend: Backend, watch: Watch):
    await enqueue(backend, a_job(), a_job())
    (held,) = await claim(backend, 1, lease=LONG)
    (other,) = await claim(backend, 1, lease=LEASE)
    watch.execute(f"update {watch.schema}.running set lease_until = 0 where seq = {held.lease.seq}")
    with _frozen(backend.transactions.begin_blocking(held.lease, limit=LONG), "pipeline", watch) as pid:
        (rescued,) = await _soon(lambda: backend.jobs.rescue(None, MANY))
        assert rescued.job_id == other.id
        assert watch.stands(pid) is not None


async def test_a_transaction_within_its_limit_is_left_alone_though_its_lease_has_expired(backend: Backend):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    await asyncio.sleep(LEASE.total_seconds())
    async with backend.transactions.begin(job.lease, limit=LEASE / 3) as transaction:
        async with transaction.connection.pipeline():
            await transaction.connection.execute("select 1")
            assert await asyncio.create_task(backend.jobs.rescue(None, MANY), context=Context()) == []
        assert await transaction.complete(job.lease, None) is Verdict.DONE
    assert await state_of(backend, job.id) is JobState.COMPLETED


async def test_a_long_transaction_of_a_stranger_is_left_alone(backend: Backend, watch: Watch, url: str):
    """It has old locks in this database, even in our tables, but not on a row that recovery waits for."""
    job_id, _ = await enqueue(backend, a_job(), a_job())
    await claim(backend, 1, lease=LEASE)
    with psycopg.connect(parts_of(url)[0]) as stranger:
        stranger.execute("create temporary table ours (n integer)")
        assert await backend.transactions.join(stranger).enqueue([a_job()]) == [True]
        assert [each.job_id for each in await _soon(lambda: backend.jobs.rescue(None, MANY))] == [job_id]
        assert stranger.execute("select 1").fetchone() == (1,)


async def test_a_handler_that_goes_on_after_its_session_was_ended_learns_that_its_transaction_expired(
    backend: Backend, watch: Watch
):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    transactions = backend.transactions
    with pytest.raises(TransactionExpired), transactions.begin_blocking(job.lease, limit=timedelta(seconds=5)) as ours:
        await asyncio.create_task(_soon(lambda: backend.jobs.rescue(None, MANY)), context=Context())
        ours._limit = LEASE  # type: ignore[attr-defined] # a frozen client's own clock has not run out yet here
        ours.connection.execute("select 1")


@pytest.mark.parametrize("how", ["pipeline", "idle"])
async def test_the_order_key_of_a_lost_job_that_a_caller_holds_keeps_nobody_waiting(
    backend: Backend, watch: Watch, url: str, how: str
):
    """The end of a head locks the row of its key, which an enqueue to the same key in a caller's transaction holds."""
    await enqueue(backend, keyed("customer-1"), a_job())
    first, other = await claim(backend, 2, lease=timedelta(seconds=3))
    await backend.jobs.cancel(first.id, "no longer wanted")
    with psycopg.connect(parts_of(url)[0]) as caller:
        await backend.transactions.join(caller).enqueue([keyed("customer-1")])
        STANDING[how][0](caller)
        watch.execute(f"update {watch.schema}.running set lease_until = 0")
        rescued = await _soon(lambda: backend.jobs.rescue(None, MANY))
        assert [each.job_id for each in rescued] == [other.id]
        rescued = await _soon(lambda: backend.jobs.rescue(None, MANY))
        assert [(each.job_id, each.state) for each in rescued] == [(first.id, JobState.CANCELLED)]
        caller.pgconn.finish()


async def test_an_extender_that_stands_still_before_its_commit_is_ended_by_the_server(backend: Backend):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    assert isinstance(backend, PostgresBackend)
    extender = backend.extender()

    def extended_but_not_committed() -> Steps[None]:
        yield from extend_many([job.lease], LONG)
        time.sleep(1.5)  # that is the fault
        yield from rows("store_clock")

    with pytest.raises(StoreUnavailable):
        extender._transact(extended_but_not_committed(), LEASE / 8)
    extender.close()
    assert await _soon(lambda: backend.jobs.rescue(None, MANY))


# --- the right to end a session ---------------------------------------------------------------------------------------


@contextmanager
def _role(watch: Watch, name: str, *rights: str) -> Iterator[str]:
    role = f"{name}_{watch.schema}"
    watch.execute(f"create role {role} login in role pg_read_all_data, pg_write_all_data")
    watch.execute(f"grant usage on schema {watch.schema} to {role}")
    watch.execute(f"grant usage on all sequences in schema {watch.schema} to {role}")
    for right in rights:
        watch.execute(f"grant {right} to {role}")
    try:
        yield role
    finally:
        watch.execute(f"drop owned by {role}")
        watch.execute(f"drop role {role}")


def _as(role: str, url: str) -> str:
    return url.replace("//holdfast@", f"//{role}@")


async def test_a_role_that_may_not_end_the_session_says_so_once_and_recovers_the_rest(
    backend: Backend, watch: Watch, url: str, caplog: pytest.LogCaptureFixture
):
    await enqueue(backend, a_job(), a_job())
    (held,) = await claim(backend, 1, lease=LEASE)
    (other,) = await claim(backend, 1, lease=LEASE)
    with _role(watch, "rescuer") as role:
        async with open_store(_as(role, url)) as rescuer:
            with _frozen(backend.transactions.begin_blocking(held.lease, limit=LONG), "pipeline", watch) as pid:
                (rescued,) = await _soon(lambda: rescuer.jobs.rescue(None, MANY))
                assert rescued.job_id == other.id
                await asyncio.sleep(1.0)
                assert await rescuer.jobs.rescue(None, MANY) == []
                assert await rescuer.jobs.rescue(None, MANY) == []
                assert watch.stands(pid) is not None
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1, warnings
    assert f"session {pid} of role holdfast holds rows that recovery waits for" in warnings[0]
    assert "pg_signal_backend" in warnings[0]


async def test_a_role_with_the_right_to_signal_ends_the_session_of_another_role(
    backend: Backend, watch: Watch, url: str
):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    with _role(watch, "rescuer", "pg_signal_backend") as rescuer_role, _role(watch, "holder") as holder_role:
        async with open_store(_as(rescuer_role, url)) as rescuer, open_store(_as(holder_role, url)) as holder:
            with _frozen(holder.transactions.begin_blocking(job.lease, limit=LONG), "copy", watch):
                (rescued,) = await _soon(lambda: rescuer.jobs.rescue(None, MANY))
    assert rescued.job_id == job.id


# --- shares -----------------------------------------------------------------------------------------------------------


async def _join(backend: Backend, *nodes: Any) -> None:
    for node in nodes:
        await backend.streams.allocations.join(a_node(node, timing=FAST))


async def _two_shares(backend: Backend) -> tuple[Grant, Grant, Leadership]:
    """Grant two shares to a node that will not report again."""
    await begin_consumer(backend, partitions=2)
    await _join(backend, NODE_A, NODE_B)
    leadership = await lead(backend)
    first, second = (Share(CONSUMER, CATEGORY, number) for number in range(2))
    moves = [GrantTo(share, (await allotted(backend, share)).generation, NODE_A) for share in (first, second)]
    assert await backend.streams.allocations.allot(leadership, moves, grace=FAST.grace) == [True, True]
    return Grant(first, moves[0].generation + 1), Grant(second, moves[1].generation + 1), leadership


def _seizure(grant: Grant) -> Seize:
    return Seize(grant.share, grant.generation, SeizeReason.SILENT)


async def _silent(backend: Backend, watch: Watch) -> None:
    """Wait until the node counts as silent."""
    text = f"select beat_at + ttl from {watch.schema}.node where node_id = 'node-a'"
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
    with _frozen(opened, how, watch) as pid:
        # Another lock on the same row makes a group of the two transactions, of which one goes on.
        watch.execute(f"select 1 from {watch.schema}.allocation for key share")
        await _silent(backend, watch)
        began = time.monotonic()
        moves = [_seizure(grant), _seizure(other)]
        first = await allocations.allot(leadership, moves, grace=FAST.grace)
        assert time.monotonic() - began < 2.0
        assert first is not None
        assert first[1], "the share that is free does not wait for the one that is locked"
        if not first[0]:  # the session was ended, and had not yet gone
            assert await _soon(lambda: allocations.allot(leadership, moves[:1], grace=FAST.grace)) == [True]
        assert watch.stands(pid) is None


async def test_a_share_that_is_locked_within_its_right_holds_up_no_other(backend: Backend, watch: Watch):
    grant, other, leadership = await _two_shares(backend)
    allocations = backend.streams.allocations
    await _silent(backend, watch)
    with _frozen(backend.streams.consumers.begin_blocking(grant, limit=LONG), "pipeline", watch) as pid:
        done = await allocations.allot(leadership, [_seizure(grant), _seizure(other)], grace=FAST.grace)
        assert done == [False, True]
        assert watch.stands(pid) is not None
        await allocations.beat(NODE_B, FAST)
        again = await allotted(backend, other.share)
        moves = [_seizure(grant), GrantTo(other.share, again.generation, NODE_B)]
        assert await allocations.allot(leadership, moves, grace=FAST.grace) == [False, True]


@pytest.mark.parametrize("table", ["node", "consumer"])
async def test_a_row_of_a_node_or_a_consumer_that_is_locked_holds_up_only_what_needs_it(
    backend: Backend, watch: Watch, url: str, table: str
):
    grant, _, leadership = await _two_shares(backend)
    allocations = backend.streams.allocations
    await begin_consumer(backend, consumer="other", category="others")
    await _join(backend, NODE_B)
    free = await allotted(backend, Share("other", "others", 0))
    await _silent(backend, watch)
    await allocations.beat(NODE_B, FAST)
    moves = [_seizure(grant), GrantTo(free.share, free.generation, NODE_B)]
    with psycopg.connect(parts_of(url)[0]) as locker:
        name = "node_id = 'node-a'" if table == "node" else f"consumer = '{CONSUMER}'"
        locker.execute(f"select 1 from {watch.schema}.{table} where {name} for update".encode())
        assert await allocations.allot(leadership, moves, grace=FAST.grace) == [False, True]
    assert await allocations.allot(leadership, moves[:1], grace=FAST.grace) == [True]


# --- verbs that stand still -------------------------------------------------------------------------------------------


def _impatient(backend: Backend) -> Blockers:
    assert isinstance(backend, PostgresBackend)
    return Blockers(backend._parts.runner, pause=timedelta(seconds=0.3), least=timedelta(seconds=1))


async def _ended(backend: Backend, watch: Watch, pid: int) -> None:
    blockers = _impatient(backend)

    async def look() -> bool:
        await blockers.end_stuck()
        return watch.stands(pid) is None

    await _soon(look)


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
        _in_a_pipeline(leader)
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
        _in_a_pipeline(half_sent)
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
        _in_a_copy(caller)
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
                with _frozen(opened, how, watch) as pid:
                    (rescued,) = await _soon(lambda: pooled_backend.jobs.rescue(None, MANY))
                    assert rescued.job_id == job.id
                    assert watch.stands(pid) is None
                allocations = pooled_backend.streams.allocations
                opened_share = pooled_backend.streams.consumers.begin_blocking(grant, limit=LONG)
                with _frozen(opened_share, how, watch):
                    await _silent(backend, watch)

                    async def seized() -> bool:
                        done = await allocations.allot(leadership, [_seizure(grant)], grace=FAST.grace)
                        return bool(done and done[0])

                    assert await _soon(seized)
    except NoServerError as error:
        give_up("PgBouncer", str(error))
    assert (await allotted(backend, other.share)).owner == NODE_A
