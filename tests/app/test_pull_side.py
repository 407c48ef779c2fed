"""The pull side: claim and the verbs of a held job, drain, leases, rescue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.app.work import LIMIT

from holdfast import App, ClaimedJob, ConfigError, JobState, LeaseLost, PayloadError


@pytest.fixture
def orders(app: App):
    @app.task(queue="orders", max_attempts=2, retry=0.01)
    async def orders(n: int) -> int:
        return n

    return orders


async def claimed(app: App, orders: Any, n: int = 1) -> ClaimedJob:
    await orders.enqueue(n=n)
    (held,) = await app.claim("orders")
    return held


async def test_a_claim_takes_the_first_of_a_queue_and_nobody_else_gets_them(app, orders):
    await orders.enqueue_many([{"n": n} for n in range(5)])

    first = await app.claim("orders", 3, worker_id="me")
    second = await app.claim("orders", limit=10)

    assert [held.arguments() for held in first] == [([], {"n": n}) for n in range(3)]
    assert [held.arguments()[1]["n"] for held in second] == [3, 4]
    assert await app.claim("orders") == []
    assert await app.claim("elsewhere") == []
    assert {lease.worker_id.partition(".")[0] for lease in await app.leases()} == {"me", "caller"}


async def test_a_claim_takes_due_jobs_that_no_worker_has_promoted(app, orders):
    await orders.options(delay=0.01).enqueue(n=1)
    await asyncio.sleep(0.02)

    assert len(await app.claim("orders")) == 1


async def test_a_claim_of_a_text_instead_of_a_list_of_tasks_is_refused_with_the_remedy(app, orders):
    await orders.enqueue(n=1)

    with pytest.raises(ConfigError, match=r"tasks='orders' is a string.*tasks=\['orders'\]"):
        await app.claim("orders", tasks="orders")
    with pytest.raises(ConfigError, match="task name 7 is not a string"):
        await app.claim("orders", tasks=[7])


async def test_a_claim_may_be_narrowed_to_tasks(app, orders):
    await orders.enqueue(n=1)

    assert await app.claim("orders", tasks=["other"]) == []
    assert len(await app.claim("orders", tasks=["orders", "other"])) == 1


async def test_a_held_job_completes_with_a_result(app, orders):
    held = await claimed(app, orders)

    await held.complete({"paid": True})

    assert await app.job(held.id).result() == {"paid": True}
    await held.complete()  # a repeat, as after a lost reply
    assert await app.job(held.id).result() == {"paid": True}


async def test_a_held_job_is_retried_by_its_policy_until_its_attempts_are_used_up(app, orders):
    held = await claimed(app, orders)
    await held.retry(ConnectionError("busy"))
    assert await app.job(held.id).state() is JobState.SCHEDULED

    await asyncio.sleep(0.02)
    (again,) = await app.claim("orders")
    assert again.job.attempt == 2
    await again.retry("still busy", delay=timedelta(hours=1))

    details = await app.jobs.show(held.id)
    assert details.job.state is JobState.FAILED
    assert [attempt.message for attempt in details.attempts] == ["busy", "still busy"]


async def test_a_held_job_is_retried_after_a_delay_of_the_callers_own(app, orders):
    held = await claimed(app, orders)

    await held.retry("later", delay=3600)

    view = (await app.jobs.show(held.id)).job
    assert view.state is JobState.SCHEDULED
    assert view.run_at - view.enqueued_at > timedelta(seconds=3500)


async def test_a_held_job_fails_whatever_attempts_are_left(app, orders):
    held = await claimed(app, orders)

    await held.fail("the card is stolen")

    assert (await app.jobs.show(held.id)).job.reason == "Failed: the card is stolen"
    assert await app.job(held.id).state() is JobState.FAILED


async def test_a_held_job_is_cancelled_with_a_reason(app, orders):
    held = await claimed(app, orders)

    await held.cancel("withdrawn")

    assert (await app.jobs.show(held.id)).job.reason == "withdrawn"


async def test_a_held_job_given_back_costs_no_attempt(app, orders):
    held = await claimed(app, orders)
    await held.release()

    (again,) = await app.claim("orders")

    assert again.id == held.id
    assert (again.job.attempt, again.job.used_attempts) == (2, 1)
    assert again.job.fence > held.job.fence


async def test_a_held_job_is_extended(app, orders):
    held = await claimed(app, orders)

    await held.extend(500)

    (lease,) = await app.leases()
    assert lease.expires_in > timedelta(seconds=400)
    await held.extend()
    with pytest.raises(ConfigError, match="cannot be negative"):
        await held.extend(-1)


async def test_every_verb_of_a_stale_hold_raises_and_changes_nothing(app, orders):
    held = await claimed(app, orders)
    assert await app.jobs.reset(held.id)
    (holder,) = await app.claim("orders")

    for verb in (
        held.complete,
        held.extend,
        held.release,
        held.cancel,
        lambda: held.retry("x"),
        lambda: held.fail("x"),
        lambda: held.context().progress(5),
    ):
        with pytest.raises(LeaseLost, match=r"(?i)nothing was written"):
            await verb()
    with pytest.raises(LeaseLost):
        async with held.context().transaction():
            raise AssertionError("a stale hold must not get this far")

    assert (await app.jobs.show(held.id)).job.state is JobState.RUNNING
    await holder.complete()


async def test_the_context_of_a_held_job_completes_it_in_a_transaction(app, orders):
    held = await claimed(app, orders)
    ctx = held.context()

    async with ctx.transaction() as connection:
        await connection.execute("create table effect (n integer)")
        ctx.result = "both"

    assert await app.job(held.id).result() == "both"


async def test_a_lease_that_ran_out_is_rescued_and_its_holder_is_stale(app, orders):
    await orders.enqueue(n=1)
    (held,) = await app.claim("orders", lease=0.05)
    assert await app.rescue() == []
    await asyncio.sleep(0.1)

    assert [lease.job_id for lease in await app.leases(expired_only=True)] == [held.id]
    (rescued,) = await app.rescue()

    assert (rescued.job_id, rescued.task, rescued.queue, rescued.attempt) == (held.id, "orders", "orders", 1)
    assert rescued.state is JobState.READY
    with pytest.raises(LeaseLost):
        await held.complete()
    assert [attempt.outcome for attempt in (await app.jobs.show(held.id)).attempts] == ["rescued"]


async def test_arguments_that_do_not_fit_the_task_any_more_are_told_when_read(app, orders):
    held = await claimed(app, orders)

    class Changed(ClaimedJob):
        pass

    import msgspec

    changed = Changed(app, msgspec.structs.replace(held.job, payload='[[],{"m":1}]'), timedelta(seconds=30))
    with pytest.raises(PayloadError, match="does not match task 'orders'"):
        changed.arguments()


async def test_drain_runs_what_is_ready_in_batches_and_returns(app: App):
    most = 0
    running = 0
    seen: list[int] = []

    @app.task(queue="orders", max_attempts=1)
    async def order(n: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        seen.append(n)
        if n == 13:
            raise ValueError("unlucky")

    await order.enqueue_many([{"n": n} for n in range(120)])
    await order.options(queue="elsewhere").enqueue(n=999)
    await order.options(delay=3600).enqueue(n=1000)

    totals = await asyncio.wait_for(app.drain("orders", batch=50), LIMIT)

    assert (totals.completed, totals.failed) == (119, 1)
    assert sorted(seen) == list(range(120))
    assert most <= 50
    assert await asyncio.wait_for(app.drain("orders"), LIMIT) == type(totals)()


async def test_two_drains_share_a_queue_without_doing_anything_twice(app: App):
    seen: list[int] = []

    @app.task(queue="orders")
    async def order(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(n)

    await order.enqueue_many([{"n": n} for n in range(200)])
    totals = await asyncio.gather(*(asyncio.wait_for(app.drain("orders", batch=10), LIMIT) for _ in range(3)))

    assert sum(total.completed for total in totals) == 200
    assert sorted(seen) == list(range(200))
