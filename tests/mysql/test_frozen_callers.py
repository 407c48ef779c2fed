"""A caller that stands still in a transaction of its own keeps what it has locked, and holds up no other job."""

from __future__ import annotations

import time
from contextlib import closing

import pymysql
import pytest
from tests.mysql.test_using import place

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.model.job import JobState, LeasedJob
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, enqueue, state_of
from holdfast.testing.conformance.order_keys import keyed, states

PLAIN = 100


async def finish(backend: MysqlBackend, jobs: list[LeasedJob], outcome: str | None) -> list[Verdict]:
    """As a worker does; None is a completion without a result."""
    began = time.monotonic()
    ended = Completed(None) if outcome is None else OUTCOMES[outcome]
    verdicts = await backend.jobs.finish([Finish(job.lease, ended) for job in jobs], briefly=True)
    assert time.monotonic() - began < 8.0
    return verdicts


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_the_end_of_the_head_of_a_locked_key_is_delayed_and_all_others_are_written(
    backend: MysqlBackend, url: str, outcome: str
):
    plain = await enqueue(backend, *(a_job() for _ in range(PLAIN)))
    await enqueue(backend, keyed("locked"))
    free, following = await enqueue(backend, keyed("free"), keyed("free"))
    jobs = await claim(backend, PLAIN + 2)
    (head,) = [job for job in jobs if job.id not in {*plain, free}]
    with closing(pymysql.connect(**place(url), ssl_disabled=True)) as caller:
        await backend.transactions.join(caller).enqueue([keyed("locked")])
        verdicts = await finish(backend, jobs, outcome)
        assert verdicts == [Verdict.DELAYED if job is head else Verdict.DONE for job in jobs]
        assert await states(backend, head.id, free, following) == [
            JobState.RUNNING,
            JobState(outcome),
            JobState.READY,
        ]
        caller.rollback()
    assert set(await finish(backend, jobs, outcome)) == {Verdict.DONE}
    assert await state_of(backend, head.id) is JobState(outcome)


async def test_the_completion_of_a_locked_lease_is_delayed_and_all_others_are_written(backend: MysqlBackend, url: str):
    await enqueue(backend, *(a_job() for _ in range(PLAIN)))
    jobs = await claim(backend, PLAIN)
    with closing(pymysql.connect(**place(url), ssl_disabled=True)) as caller, caller.cursor() as cursor:
        cursor.execute("select * from holdfast_running where seq = %s for update", (jobs[7].seq,))
        verdicts = await finish(backend, jobs, None)
        assert verdicts == [Verdict.DELAYED if job is jobs[7] else Verdict.DONE for job in jobs]
        caller.rollback()
    assert set(await finish(backend, jobs, None)) == {Verdict.DONE}
