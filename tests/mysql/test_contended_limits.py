"""Claims under a limit that another session has locked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.model.limits import Limit
from holdfast.testing.conformance.base import a_job, enqueue
from holdfast.testing.conformance.limits import GREET, MAIL, ask

SOON = timedelta(milliseconds=5)


@pytest.mark.parametrize("limit", [Limit(running=2), Limit(rate="1000/s", burst=10)], ids=["running", "rate"])
@pytest.mark.parametrize(("key", "table"), [(MAIL, "queue"), (GREET, "task")], ids=["queue", "task"])
async def test_a_claim_under_a_limit_that_another_session_has_locked_is_repeated_after_a_pause(
    backend: MysqlBackend, url: str, key, table, limit
):
    await backend.queues.limit(key, limit)
    ids = await enqueue(backend, a_job("mail"))
    other = mysql.connect(url)
    try:
        other.begin()
        with other.cursor() as cursor:
            cursor.execute(f"select 1 from holdfast_{table} for update")  # noqa: S608 - our names
        found = await ask(backend)
        assert (found.jobs, found.is_limited, found.wait) == ([], True, SOON)
        other.rollback()
        assert [job.id for job in (await ask(backend)).jobs] == ids
    finally:
        other.close()
