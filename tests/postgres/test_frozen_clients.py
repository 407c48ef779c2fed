"""Clients that stand still in the middle of a transaction: what they have locked is free once their limit has passed.

The clients here are connections of the test itself that do not go on: to the server that is what a frozen process is.
Processes that are really stopped: see `test_frozen_processes.py`.
"""

# ruff: noqa: PT012, S608 - what a transaction raises is raised out of its block; names in statements are our own

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import timedelta

import psycopg
import pytest
from tests.postgres.standing_still import STANDING, Watch, every_standing, frozen, in_a_pipeline, soon
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.postgres.verbs.extend import extend_many
from holdfast.backends.sql.steps import rows
from holdfast.errors import StoreUnavailable, TransactionExpired
from holdfast.model.job import JobState, LeasedJob
from holdfast.store.backend import Backend
from holdfast.store.steps import Steps
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue, state_of
from holdfast.testing.conformance.order_keys import keyed
from holdfast.testing.stores import open_store

LONG = timedelta(seconds=60)
LEASE = timedelta(seconds=1)


# --- jobs -------------------------------------------------------------------------------------------------------------


@every_standing
async def test_an_expired_lease_is_taken_from_a_client_that_stands_still(
    backend: Backend, watch: Watch, how: str, caplog: pytest.LogCaptureFixture
):
    (job_id,) = await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    with frozen(backend.transactions.begin_blocking(job.lease, limit=LONG), how, watch) as pid:
        (rescued,) = await soon(lambda: backend.jobs.rescue(None, MANY))
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
        (rescued,) = await soon(lambda: backend.jobs.rescue(None, MANY))
        connection.pgconn.finish()
    assert rescued.job_id == job_id


async def test_while_one_stands_still_within_its_right_the_leases_of_others_are_taken(backend: Backend, watch: Watch):
    await enqueue(backend, a_job(), a_job())
    (held,) = await claim(backend, 1, lease=LONG)
    (other,) = await claim(backend, 1, lease=LEASE)
    watch.execute(f"update {watch.schema}.running set lease_until = 0 where seq = {held.lease.seq}")
    with frozen(backend.transactions.begin_blocking(held.lease, limit=LONG), "pipeline", watch) as pid:
        (rescued,) = await soon(lambda: backend.jobs.rescue(None, MANY))
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
        assert [each.job_id for each in await soon(lambda: backend.jobs.rescue(None, MANY))] == [job_id]
        assert stranger.execute("select 1").fetchone() == (1,)


async def test_a_handler_that_goes_on_after_its_session_was_ended_learns_that_its_transaction_expired(
    backend: Backend, watch: Watch
):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    transactions = backend.transactions
    with pytest.raises(TransactionExpired), transactions.begin_blocking(job.lease, limit=timedelta(seconds=5)) as ours:
        await asyncio.create_task(soon(lambda: backend.jobs.rescue(None, MANY)), context=Context())
        ours.limit = LEASE  # type: ignore[attr-defined] # a frozen client's own clock has not run out yet here
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
        rescued = await soon(lambda: backend.jobs.rescue(None, MANY))
        assert [each.job_id for each in rescued] == [other.id]
        rescued = await soon(lambda: backend.jobs.rescue(None, MANY))
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
        extender.write(extended_but_not_committed, LEASE / 8)
    extender.close()
    assert await soon(lambda: backend.jobs.rescue(None, MANY))


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
            with frozen(backend.transactions.begin_blocking(held.lease, limit=LONG), "pipeline", watch) as pid:
                (rescued,) = await soon(lambda: rescuer.jobs.rescue(None, MANY))
                assert rescued.job_id == other.id
                await asyncio.sleep(1.0)
                assert await rescuer.jobs.rescue(None, MANY) == []
                assert await rescuer.jobs.rescue(None, MANY) == []
                assert watch.stands(pid) is not None
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1, warnings
    assert f"session {pid} of role holdfast holds rows that recovery waits for" in warnings[0]
    assert "pg_signal_backend" in warnings[0]


@contextmanager
def _frozen_after_a_savepoint(backend: Backend, job: LeasedJob, url: str) -> Iterator[None]:
    """Complete a job inside a savepoint and stop: no view of the server maps the row's lock to the session."""
    with psycopg.connect(parts_of(url)[0]) as connection:
        connection.execute("select 1")
        with connection.transaction():
            assert backend.transactions.complete(job.lease, None, using=connection) is Verdict.DONE
        in_a_pipeline(connection)
        try:
            yield
        finally:
            connection.pgconn.finish()


async def test_a_session_that_cannot_be_ended_keeps_no_other_lease_from_recovery(
    backend: Backend, watch: Watch, url: str
):
    await enqueue(backend, a_job(), a_job(), a_job())
    refused, hidden, free = await claim(backend, 3, lease=LEASE)
    watch.execute(
        f"update {watch.schema}.running set lease_until = lease_until - 1000000 where seq = {refused.lease.seq}"
    )
    with _role(watch, "rescuer") as role:
        ours = _as(role, url)
        async with open_store(ours) as rescuer:
            with _frozen_after_a_savepoint(backend, refused, url), _frozen_after_a_savepoint(backend, hidden, ours):
                rescued = [await soon(lambda: rescuer.jobs.rescue(LONG, MANY)) for _ in range(2)]
    assert [[each.job_id for each in part] for part in rescued] == [[free.id], [hidden.id]]


async def test_a_role_with_the_right_to_signal_ends_the_session_of_another_role(
    backend: Backend, watch: Watch, url: str
):
    await enqueue(backend, a_job())
    (job,) = await claim(backend, lease=LEASE)
    with _role(watch, "rescuer", "pg_signal_backend") as rescuer_role, _role(watch, "holder") as holder_role:
        async with open_store(_as(rescuer_role, url)) as rescuer, open_store(_as(holder_role, url)) as holder:
            with frozen(holder.transactions.begin_blocking(job.lease, limit=LONG), "copy", watch):
                (rescued,) = await soon(lambda: rescuer.jobs.rescue(None, MANY))
    assert rescued.job_id == job.id
