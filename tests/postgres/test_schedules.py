"""Schedules on PostgreSQL: a row that another session has locked is passed over, and never waited for."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
from psycopg import sql
from tests.servers.postgres import parts_of

from holdfast.model.schedule import recurrence
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.store.backend import Backend
from holdfast.store.verbs.schedules import AGAIN
from holdfast.testing.clock import ManualClock
from holdfast.testing.stores import open_store


async def test_a_schedule_that_a_frozen_client_has_locked_delays_no_other(url: str):
    clock = ManualClock()
    async with open_store(url, clock=clock) as backend:
        await see_one_fire(url, backend, clock)


async def see_one_fire(url: str, backend: Backend, clock: ManualClock) -> None:
    each = ScheduleDefinition(recurrence(every=timedelta(minutes=1)), "greet")
    for name in ("locked", "other"):
        await backend.schedules.put(name, each)
    clock.advance(timedelta(minutes=1))
    server, schema = parts_of(url)
    with psycopg.connect(server) as connection:
        table = sql.Identifier(schema, "schedule")
        connection.execute(sql.SQL("select from {} where name = 'locked' for update").format(table))
        async with asyncio.timeout(5):
            fired = await backend.schedules.fire(["greet"], [], 100)
    assert (fired.jobs, fired.next_due) == (1, AGAIN)
    assert (await backend.schedules.fire(["greet"], [], 100)).jobs == 1
