"""A caller that stands still in a transaction of its own keeps what it has locked, and holds up no other job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.app.work import working
from tests.postgres.standing_still import STANDING, soon
from tests.servers.postgres import parts_of

from holdfast import App, JobState
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed, Outcome
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, enqueue, state_of
from holdfast.testing.conformance.order_keys import keyed, states
from holdfast.testing.conformance.parents import after

DONE, DELAYED, LOST = Verdict.DONE, Verdict.DELAYED, Verdict.LOST
COMPLETED = Completed()
PLAIN = 100


@contextmanager
def calling(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A caller's connection; at the end its client goes away, and the server rolls its transaction back."""
    caller = psycopg.connect(parts_of(url)[0])
    try:
        yield caller
    finally:
        caller.pgconn.finish()


async def finish(backend: Backend, jobs: list[LeasedJob], outcome: Outcome = COMPLETED) -> list[Verdict]:
    """As a worker does."""
    began = time.monotonic()
    verdicts = await backend.jobs.finish([Finish(job.lease, outcome) for job in jobs], briefly=True)
    assert time.monotonic() - began < 5.0
    return verdicts


@pytest.mark.parametrize("how", ["idle", "half_sent"])
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_the_end_of_the_head_of_a_locked_key_is_delayed_and_all_others_are_written(
    backend: Backend, url: str, how: str, outcome: str
):
    end = OUTCOMES[outcome]
    plain = await enqueue(backend, *(a_job() for _ in range(PLAIN)))
    await enqueue(backend, keyed("locked"))
    (free, following) = await enqueue(backend, keyed("free"), keyed("free"))
    jobs = await claim(backend, PLAIN + 2)
    (head,) = [job for job in jobs if job.id not in {*plain, free}]
    with calling(url) as caller:
        await backend.transactions.join(caller).enqueue([keyed("locked")])
        STANDING[how][0](caller)
        assert await finish(backend, jobs, end) == [DELAYED if job is head else DONE for job in jobs]
        assert await states(backend, head.id, free, following) == [
            JobState.RUNNING,
            JobState(outcome),
            JobState.READY,
        ]
        assert await finish(backend, jobs, end) == [DELAYED if job is head else DONE for job in jobs]
    verdicts = await soon(lambda: _unless_delayed(backend, jobs, end))
    assert set(verdicts) == {DONE}
    assert await state_of(backend, head.id) is JobState(outcome)


async def _unless_delayed(backend: Backend, jobs: list[LeasedJob], end: Outcome) -> list[Verdict]:
    verdicts = await finish(backend, jobs, end)
    return [] if DELAYED in verdicts else verdicts


async def test_a_job_to_which_a_caller_has_linked_a_child_is_delayed_and_all_others_are_written(
    backend: Backend, url: str
):
    await enqueue(backend, *(a_job() for _ in range(PLAIN + 1)))
    parent, *others = await claim(backend, PLAIN + 1)
    with calling(url) as caller:
        await backend.transactions.join(caller).enqueue([after(parent.id)])
        assert await finish(backend, [parent, *others]) == [DELAYED, *[DONE] * PLAIN]
    assert await soon(lambda: _unless_delayed(backend, [parent], COMPLETED)) == [DONE]


async def test_a_stale_lease_is_lost_though_other_jobs_are_delayed(backend: Backend, url: str):
    await enqueue(backend, keyed("locked"), a_job())
    head, stale = await claim(backend, 2)
    await backend.jobs.release([stale.lease], started=False)
    with calling(url) as caller:
        await backend.transactions.join(caller).enqueue([keyed("locked")])
        assert await finish(backend, [stale, head]) == [LOST, DELAYED]


async def test_the_head_waits_for_a_caller_that_commits_soon(backend: Backend, url: str):
    """Behind a key that many enqueue to, a completion that only looked would hardly ever find it free."""
    await enqueue(backend, keyed("busy"))
    (head,) = await claim(backend)
    with calling(url) as caller:
        await backend.transactions.join(caller).enqueue([keyed("busy")])
        caller.commit()
    with calling(url) as caller:
        await backend.transactions.join(caller).enqueue([keyed("busy")])
        caller.pgconn.send_query(b"select pg_sleep(0.2); commit")
        caller.pgconn.flush()
        assert await finish(backend, [head]) == [DONE]


async def test_a_worker_completes_and_claims_all_else_while_a_caller_keeps_one_key_locked(url: str):
    app = App(url)

    @app.task
    async def greet() -> None: ...

    async with app:
        head = await greet.options(order_key="locked").enqueue()
        plain = await greet.enqueue_many([{}] * PLAIN)
        with calling(url) as caller:
            await greet.options(order_key="locked", using=caller).enqueue()
            began = time.monotonic()
            async with working(app) as worker:
                for job in plain:
                    await job.wait(10.0)
                for job in await greet.enqueue_many([{}] * PLAIN):
                    await job.wait(10.0)
                assert time.monotonic() - began < 10.0
                assert await head.state() is JobState.RUNNING
                caller.pgconn.finish()
                assert await head.wait(10.0) is JobState.COMPLETED
    assert worker.status().totals.completed == 2 * PLAIN + 1
    assert worker.status().totals.lost == 0
