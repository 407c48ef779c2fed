"""Claims under a limit that another session has locked, or whose jobs it has locked."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.model.limits import Limit
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job, enqueue
from holdfast.testing.conformance.limits import GREET, MAIL, ask

SOON = timedelta(milliseconds=5)
RATE = Limit(rate="1000/s", burst=10)


@pytest.mark.parametrize("limit", [Limit(running=2), RATE], ids=["running", "rate"])
@pytest.mark.parametrize(("key", "table"), [(MAIL, "queue"), (GREET, "task")], ids=["queue", "task"])
async def test_a_claim_under_a_limit_that_another_session_has_locked_is_repeated_after_a_pause(
    backend: Backend, url: str, key, table, limit
):
    conninfo, schema = parts_of(url)
    await backend.queues.limit(key, limit)
    ids = await enqueue(backend, a_job("mail"))
    with psycopg.connect(conninfo) as other:
        other.execute(f"select 1 from {schema}.{table} for update".encode())  # noqa: S608 - our names
        found = await ask(backend)
        assert (found.jobs, found.is_limited, found.wait) == ([], True, SOON)
        other.rollback()
    assert [job.id for job in (await ask(backend)).jobs] == ids


async def test_so_is_one_whose_jobs_another_session_has_locked(backend: Backend, url: str):
    conninfo, schema = parts_of(url)
    await backend.queues.limit(MAIL, RATE)
    await enqueue(backend, *(a_job("mail") for _ in range(12)))
    with psycopg.connect(conninfo) as other:
        other.execute(f"select 1 from {schema}.ready for update".encode())  # noqa: S608 - our names
        found = await ask(backend)
        assert (found.jobs, found.is_limited, found.wait) == ([], True, SOON)
    assert len((await ask(backend)).jobs) == 10
