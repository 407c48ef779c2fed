"""Terminated sessions, restarts, read-only servers, no connections left: told as they are, over when they are over."""

# ruff: noqa: ASYNC110, PT012 - a server tells nobody when it is ready; what a transaction raises comes out of its block

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest
from tests.servers.postgres import OwnServer

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, hold_one
from holdfast.testing.stores import open_store

TERMINATE = (
    "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
    "where application_name = 'holdfast' and pid <> pg_backend_pid()"
)


async def test_sessions_that_were_terminated_while_idle_are_not_noticed_by_the_next_call(server: OwnServer):
    async with open_store(server.url) as backend:
        extender = backend.extender()
        job = await hold_one(backend)
        server.execute(TERMINATE)
        assert extender.extend([job.lease], LEASE).lost == []
        await enqueue(backend, a_job())
        extender.close()


async def test_a_session_that_is_terminated_in_a_handlers_transaction_rolls_back_and_the_store_is_found_again(
    server: OwnServer,
):
    async with open_store(server.url) as backend:
        job = await hold_one(backend)
        with pytest.raises(StoreUnavailable):
            async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
                await backend.jobs.enqueue([a_job()])
                server.execute(TERMINATE)
                await transaction.connection.execute("select 1")
        assert [leased.id for leased in await claim(backend)] == []
        assert await backend.jobs.release([job.lease], started=True) == ["done"]


async def test_a_statement_whose_session_is_terminated_under_it_has_an_unknown_outcome(server: OwnServer):
    async with open_store(server.url) as backend, open_store(server.url) as other:
        job = await hold_one(backend)
        async with other.transactions.begin(job.lease, limit=timedelta(seconds=10)):
            waiting = asyncio.create_task(backend.jobs.extend(job.lease, LEASE))
            await _until_one_waits_for_a_lock(server)
            server.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event_type = 'Lock'"
            )
            with pytest.raises(OutcomeUnknown):
                await waiting
        await backend.jobs.extend(job.lease, LEASE)


async def _until_one_waits_for_a_lock(server: OwnServer) -> None:
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with psycopg.connect(server.url, autocommit=True) as connection:
        while connection.execute(query).fetchone() == (0,):
            await asyncio.sleep(0.01)


async def test_a_server_that_crashed_is_unavailable_and_then_found_again_with_all_that_was_acknowledged(
    server: OwnServer,
):
    async with open_store(server.url) as backend:
        job = await hold_one(backend)
        server.stop()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await backend.jobs.enqueue([a_job()])
        server.start()
        assert await backend.jobs.release([job.lease], started=False) == ["done"]
        assert [leased.id for leased in await claim(backend)] == [job.id]


async def test_a_server_that_takes_no_writes_is_unavailable_until_it_does_without_a_restart(server: OwnServer):
    async with open_store(server.url) as backend:
        await enqueue(backend, a_job())
        server.execute("alter system set default_transaction_read_only = on")
        server.execute("select pg_reload_conf()")
        await _until_refused(backend)
        with psycopg.connect(server.url, autocommit=True, options="-c default_transaction_read_only=off") as owner:
            owner.execute("alter system reset default_transaction_read_only")
            owner.execute("select pg_reload_conf()")
        async with asyncio.timeout(10):
            while True:
                try:
                    await enqueue(backend, a_job())
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.02)


async def _until_refused(backend: Backend) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await backend.jobs.enqueue([a_job()])
            except StoreUnavailable:
                return
            await asyncio.sleep(0.02)


async def test_no_connection_left_is_unavailable_but_the_extender_has_reserved_its_own(server: OwnServer):
    server.execute("create role worker login")
    server.execute("grant all on database postgres to worker")
    url = server.url.replace("holdfast@", "worker@")
    async with open_store(url) as backend:
        job = await hold_one(backend)
        extender = backend.extender()
        with ExitStack() as crowd:
            with pytest.raises(psycopg.OperationalError):
                while True:
                    crowd.enter_context(psycopg.connect(url))
            assert extender.extend([job.lease], LEASE).lost == []
            answers = await asyncio.gather(
                *(backend.jobs.progress(job.lease, 1.0, None) for _ in range(5)), return_exceptions=True
            )
            refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
            assert refused
            assert "cannot be reached" in str(refused[0])
        await backend.jobs.progress(job.lease, 2.0, None)
        extender.close()
