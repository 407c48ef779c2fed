"""`using=`: the same sentences for every kind of connection whose transaction a caller may have open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from tests.postgres.callers import KINDS, Caller, calling
from tests.servers.postgres import parts_of

from holdfast.errors import ConfigError, JobNotFound, StoreUnavailable, Unsupported
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.conformance.base import FAILURE, OUTCOMES, a_job, claim, hold_one, result_of, state_of
from holdfast.testing.conformance.notify import waker


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def caller(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Caller]:
    async with calling(request.param, parts_of(url)[0]) as caller:
        yield caller


async def _is_there(backend: Backend, job_id: str) -> bool:
    try:
        await state_of(backend, job_id)
    except JobNotFound:
        return False
    return True


async def _complete(backend: Backend, caller: Caller, lease: Any) -> Verdict:
    """Complete as a handler of that kind does."""
    if caller.is_async:
        (verdict,) = await backend.transactions.join(caller.using).finish([Finish(lease, Completed('"paid"'))])
        return verdict
    return await caller.run(lambda: backend.transactions.complete(lease, '"paid"', using=caller.using))


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_a_job_and_a_completion_share_the_fate_of_the_callers_own_rows(
    backend: Backend, url: str, caller: Caller, commits: bool
):
    job, held, table = a_job(), await hold_one(backend), f"{parts_of(url)[1]}.orders"
    async with calling(type(caller), caller.url) as other:
        await other.begin()
        await other.execute(f"create table {table} (id text)")
        await other.commit()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([job]) == [True]
    await caller.execute(f"insert into {table} values ('{job.id}')")  # noqa: S608 - names of this test
    assert await _complete(backend, caller, held.lease) is Verdict.DONE
    assert not await _is_there(backend, job.id)
    await (caller.commit() if commits else caller.rollback())
    assert await _is_there(backend, job.id) is commits
    assert await backend.jobs.verify(held.lease) is (Standing.COMPLETED if commits else Standing.HELD)
    with psycopg.connect(caller.url) as connection:
        assert len(connection.execute(f"table {table}".encode()).fetchall()) == commits


async def test_an_enqueue_is_safe_to_repeat(backend: Backend, caller: Caller):
    job = a_job()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([job]) == [True]
    assert await backend.transactions.join(caller.using).enqueue([job, a_job()]) == [False, True]
    await caller.rollback()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([job]) == [True]
    await caller.commit()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([job]) == [False]
    await caller.commit()
    assert [held.id for held in await claim(backend)] == [job.id]


async def test_a_completion_is_safe_to_repeat_and_a_stale_fence_completes_nothing(backend: Backend, caller: Caller):
    held = await hold_one(backend)
    stale = msgspec.structs.replace(held.lease, fence=held.lease.fence - 1)
    await caller.begin()
    verbs = backend.transactions.join(caller.using)
    assert await verbs.finish([Finish(stale, Completed()), Finish(held.lease, Completed('"paid"'))]) == [
        Verdict.LOST,
        Verdict.DONE,
    ]
    assert await verbs.finish([Finish(held.lease, Completed('"paid"'))]) == [Verdict.DONE]
    await caller.commit()
    assert await result_of(backend, held.id) == '"paid"'


async def test_what_a_job_carries_comes_out_as_it_was_put_in(backend: Backend, caller: Caller):
    words = 'a "quoted" \\ back\\slash, {braces}, NULL, null, %s %% $1 \' \t\n ünïcödé 🪝'
    due = datetime.now(UTC) + timedelta(days=3)
    plain = msgspec.structs.replace(
        a_job(priority=3, max_attempts=7), payload=msgspec.json.encode([words]).decode(), headers={"words": words}
    )
    jobs = [
        plain,
        a_job(payload="null", delay=timedelta(hours=1)),
        msgspec.structs.replace(a_job(payload="[]", run_at=due), timeout=2.5),
        a_job(payload='{"a":"NULL"}', priority=-2),
        msgspec.structs.replace(plain, id=a_job().id),
    ]
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue(jobs[:4]) == [True] * 4
    assert await backend.transactions.join(caller.using).enqueue(jobs[4:]) == [True]
    await caller.commit()
    taken = {held.id: held for held in await claim(backend)}
    assert set(taken) == {jobs[0].id, jobs[3].id, jobs[4].id}
    for job in (jobs[0], jobs[4]):
        held = taken[job.id]
        assert (held.payload, held.headers, held.priority, held.max_attempts) == (job.payload, job.headers, 3, 7)
    assert taken[jobs[3].id].payload == '{"a":"NULL"}'
    assert (await backend.insight.job(jobs[2].id)).job.run_at == due
    assert await state_of(backend, jobs[1].id) is JobState.SCHEDULED


async def test_many_jobs_go_at_once(backend: Backend, caller: Caller):
    jobs = [a_job() for _ in range(700)]
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue(jobs) == [True] * 700
    await caller.commit()
    assert [held.id for held in await claim(backend)] == [job.id for job in jobs]


async def test_every_end_of_an_attempt_can_be_written(backend: Backend, caller: Caller):
    held = {name: await hold_one(backend) for name in OUTCOMES}
    kept = await hold_one(backend)
    await caller.begin()
    verbs = backend.transactions.join(caller.using)
    finishes = [Finish(held[name].lease, outcome) for name, outcome in OUTCOMES.items()]
    assert await verbs.finish(finishes) == [Verdict.DONE] * len(OUTCOMES)
    await caller.commit()
    states = {name: await state_of(backend, job.id) for name, job in held.items()}
    assert states == {
        "completed": JobState.COMPLETED,
        "retried": JobState.SCHEDULED,
        "snoozed": JobState.SCHEDULED,
        "failed": JobState.FAILED,
        "cancelled": JobState.CANCELLED,
        "lost": JobState.READY,
    }
    assert await state_of(backend, kept.id) is JobState.RUNNING
    for name in ("retried", "failed", "lost"):
        (attempt,) = (await backend.insight.job(held[name].id)).attempts
        assert attempt.message == FAILURE.message


async def test_what_fails_inside_a_savepoint_leaves_the_outer_transaction_whole(backend: Backend, caller: Caller):
    before, refused, after = a_job(), a_job(), a_job()
    with psycopg.connect(caller.url) as rival:
        await backend.transactions.join(rival).enqueue([refused])
        await caller.begin()
        await caller.execute("set local lock_timeout = '50ms'")
        await backend.transactions.join(caller.using).enqueue([before])
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            async with caller.savepoint():
                await backend.transactions.join(caller.using).enqueue([refused])  # waits for the rival's transaction
        rival.rollback()
    async with caller.savepoint():
        assert await backend.transactions.join(caller.using).enqueue([refused]) == [True]
    assert await backend.transactions.join(caller.using).enqueue([after]) == [True]
    await caller.commit()
    assert {held.id for held in await claim(backend)} == {before.id, refused.id, after.id}


async def _enqueue_and_fail(backend: Backend, caller: Caller, job: NewJob) -> None:
    async with caller.savepoint():
        await backend.transactions.join(caller.using).enqueue([job])
        raise KeyError


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along(backend: Backend, caller: Caller):
    before, undone = a_job(), a_job()
    await caller.begin()
    await backend.transactions.join(caller.using).enqueue([before])
    with pytest.raises(KeyError):
        await _enqueue_and_fail(backend, caller, undone)
    await caller.commit()
    assert [held.id for held in await claim(backend)] == [before.id]


async def test_a_transaction_that_has_failed_is_refused_with_the_remedy(backend: Backend, caller: Caller):
    await caller.begin()
    with pytest.raises(Exception, match="division by zero"):
        await caller.execute("select 1/0")
    with pytest.raises(ConfigError, match=r"already failed.*roll it back"):
        await backend.transactions.join(caller.using).enqueue([a_job()])
    await caller.rollback()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([a_job()]) == [True]
    await caller.commit()


async def test_what_is_refused_before_it_reaches_the_server_leaves_the_transaction_whole(
    backend: Backend, caller: Caller
):
    held = await hold_one(backend)
    await caller.begin()
    await caller.execute("select 1")
    with pytest.raises(ConfigError, match="using= must be"):
        backend.transactions.join(object())
    if caller.is_async:
        with pytest.raises(Unsupported, match=r"is async.*await ctx.complete"):
            backend.transactions.complete(held.lease, None, using=caller.using)
    assert await _complete(backend, caller, held.lease) is Verdict.DONE
    await caller.commit()


async def test_a_closed_connection_is_refused(backend: Backend, caller: Caller):
    if "Session" in type(caller).__name__:
        pytest.skip("a closed session of SQLAlchemy begins anew when it is used")
    await caller.begin()
    await caller.execute("select 1")
    await caller.shut()
    with pytest.raises(ConfigError, match="is closed"):
        await backend.transactions.join(caller.using).enqueue([a_job()])


async def test_a_connection_that_the_server_ends_is_told_as_an_outage(backend: Backend, caller: Caller):
    await caller.begin()
    ((pid,),) = await caller.execute("select pg_backend_pid()")
    with psycopg.connect(caller.url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises((StoreUnavailable, ConfigError), match=r"cannot be reached|is closed"):
        await backend.transactions.join(caller.using).enqueue([a_job()])
    await caller.give_up()


async def test_another_database_is_refused_by_name_and_its_transaction_left_whole(
    backend: Backend, url: str, caller: Caller
):
    elsewhere = parts_of(url)[0].rpartition("/")[0] + "/template1"
    async with calling(type(caller), elsewhere) as stranger:
        await stranger.begin()
        with pytest.raises(ConfigError, match="leads to the database 'template1'"):
            await backend.transactions.join(stranger.using).enqueue([a_job()])
        assert await stranger.execute("select 1") == [(1,)]
        await stranger.rollback()


async def test_a_schema_that_is_not_installed_there_is_told(backend: Backend, url: str, caller: Caller):
    schema = parts_of(url)[1]
    await caller.begin()
    await caller.execute(f"alter schema {schema} rename to {schema}_away")  # seen in this transaction alone
    with pytest.raises(ConfigError, match=f"no tables of the schema '{schema}'"):
        await asyncio.wait_for(_identify(backend, caller), 20)
    await caller.rollback()


async def _identify(backend: Backend, caller: Caller) -> None:
    await backend.transactions.join(caller.using).outstanding(["any"], None)


async def test_all_other_verbs_run_there_too(backend: Backend, caller: Caller):
    held, lost, idle = [await hold_one(backend) for _ in range(3)]
    await caller.begin()
    verbs = backend.transactions.join(caller.using)
    fresh = a_job("other")
    assert await verbs.enqueue([fresh]) == [True]
    assert await verbs.progress(held.lease, 40.0, 'half "way"') is Verdict.DONE
    assert await verbs.extend(held.lease, timedelta(minutes=5)) is Verdict.DONE
    assert await verbs.verify(held.lease) is Standing.HELD
    assert await verbs.release([idle.lease], started=True) == [Verdict.DONE]
    assert await verbs.reset(lost.id)
    assert (await verbs.outstanding(("greet",), None)).running > 0
    assert await verbs.cancel(fresh.id, "no longer wanted")
    assert await verbs.retry(fresh.id)
    assert await verbs.rescue(None, 10) == []
    await verbs.promote(10)
    await caller.commit()
    lease = (await backend.insight.job(held.id)).lease
    assert lease is not None
    assert (lease.percent, lease.note) == (40.0, 'half "way"')
    assert await state_of(backend, fresh.id) is JobState.READY


async def test_a_hint_in_the_transaction_wakes_when_and_only_if_it_commits(backend: Backend, url: str, caller: Caller):
    heard, wake = waker()
    stop = backend.notifier.listen(wake)
    await asyncio.wait_for(heard.wait(), 20)  # it listens
    heard.clear()
    hint = f"select pg_notify('holdfast_{parts_of(url)[1]}', '')"
    await caller.begin()
    await backend.transactions.join(caller.using).enqueue([a_job()])
    await caller.execute(hint)
    await caller.rollback()
    await caller.begin()
    await backend.transactions.join(caller.using).enqueue([a_job()])
    assert not heard.is_set()  # nobody is woken for what cannot be seen yet
    await caller.execute(hint)
    await caller.commit()
    await asyncio.wait_for(heard.wait(), 20)
    stop()
