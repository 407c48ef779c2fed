"""Unique keys that another session deletes between two statements."""

from __future__ import annotations

import psycopg
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import OUTCOMES, claim, finish, state_of
from holdfast.testing.conformance.unique import start, unique


async def test_a_retry_takes_a_key_whose_holder_is_deleted_before_the_key_can_be_locked(
    backend: Backend, url: str, monkeypatch
):
    conninfo, schema = parts_of(url)
    failed = await start(backend, unique())
    await finish(backend, failed.lease, OUTCOMES["failed"])
    assert await backend.jobs.enqueue([unique()]) == [True]
    (holder,) = await claim(backend)
    await finish(backend, holder.lease, OUTCOMES["completed"])
    add_keys, looks = PostgresJobRows.add_keys, 0

    def add_and_delete(rows, claims, *, again):
        nonlocal looks
        added = yield from add_keys(rows, claims, again=again)
        looks += 1
        if looks == 1:
            with psycopg.connect(conninfo) as other:
                other.execute(f"delete from {schema}.unique_key where id = %s".encode(), (holder.id,))  # noqa: S608 - ours
        return added

    monkeypatch.setattr(PostgresJobRows, "add_keys", add_and_delete)
    assert await backend.jobs.retry(failed.id)
    assert looks == 2
    assert await state_of(backend, failed.id) is JobState.READY
    assert await backend.jobs.enqueue([unique()]) == [failed.id]
