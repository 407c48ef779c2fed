"""Effects and ends of many claimed jobs in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, ClaimedJob, ConfigError, JobState, LeaseLost, OutcomeUnknown
from holdfast.backends.sqlite.handler_transaction import SqliteTransaction
from holdfast.store.values import Standing


@pytest.fixture
async def shop(app: App) -> App:
    @app.task(queue="orders", max_attempts=2, retry=0)
    async def charge(order_id: int) -> None: ...

    @app.task(queue="looks")
    async def look() -> None: ...

    await app.enqueue("look")
    (job,) = await app.claim("looks")
    async with app.batch([job]) as batch:
        await batch.connection.execute("create table effect (job_id text)")
        batch.complete(job)
    return app


async def claimed(app: App, count: int) -> list[ClaimedJob]:
    for order_id in range(count):
        await app.enqueue("charge", order_id=order_id)
    return await app.claim("orders", count)


async def effects(app: App) -> list[str]:
    await app.enqueue("look")
    (job,) = await app.claim("looks")
    async with app.batch([job]) as batch:
        rows: list[Any] = (await batch.connection.execute("select job_id from effect order by rowid")).fetchall()
    await job.complete()
    return [row[0] for row in rows]


async def write(batch: Any, job: ClaimedJob) -> None:
    await batch.connection.execute("insert into effect values (?)", (job.id,))


async def state(app: App, job: ClaimedJob) -> JobState:
    return await app.job(job.id).state()


async def test_effects_and_completions_of_a_batch_commit_together(shop: App):
    jobs = await claimed(shop, 3)

    async with shop.batch(jobs) as batch:
        assert [job.id for job in batch.held] == [job.id for job in jobs]
        assert batch.lost == []
        for job in batch.held:
            await write(batch, job)
            batch.complete(job, {"order": job.id})

    assert await effects(shop) == [job.id for job in jobs]
    assert [await state(shop, job) for job in jobs] == [JobState.COMPLETED] * 3
    assert await shop.job(jobs[0].id).result() == {"order": jobs[0].id}


async def test_an_exception_rolls_back_every_effect_and_every_completion(shop: App):
    jobs = await claimed(shop, 2)

    with pytest.raises(ValueError, match="half-way"):  # noqa: PT012 - the whole block is refused
        async with shop.batch(jobs) as batch:
            await write(batch, jobs[0])
            batch.complete(jobs[0])
            raise ValueError("half-way")

    assert await effects(shop) == []
    assert [await state(shop, job) for job in jobs] == [JobState.RUNNING] * 2
    async with shop.batch(jobs) as batch:  # nothing hinders a second try
        batch.complete(jobs[0])
    assert await state(shop, jobs[0]) is JobState.COMPLETED


@pytest.mark.parametrize("taken", [0, 1, 2])
async def test_a_job_whose_lease_was_taken_is_lost_and_the_others_are_written(shop: App, taken: int):
    jobs = await claimed(shop, 3)
    await shop.jobs.reset(jobs[taken].id)

    async with shop.batch(jobs) as batch:
        assert [job.id for job in batch.lost] == [jobs[taken].id]
        for job in batch.held:
            await write(batch, job)
            batch.complete(job)

    assert sorted(await effects(shop)) == sorted(job.id for job in jobs if job is not jobs[taken])
    assert await state(shop, jobs[taken]) is JobState.READY


async def test_completing_a_lost_job_rolls_the_whole_batch_back(shop: App):
    jobs = await claimed(shop, 2)
    await shop.jobs.reset(jobs[1].id)

    with pytest.raises(LeaseLost):  # noqa: PT012 - the whole block is refused
        async with shop.batch(jobs) as batch:
            for job in jobs:  # not batch.held: a mistake that must do no harm
                await write(batch, job)
                batch.complete(job)

    assert await effects(shop) == []
    assert await state(shop, jobs[0]) is JobState.RUNNING


async def test_a_job_that_was_completed_under_the_same_fence_is_not_held_again(shop: App):
    jobs = await claimed(shop, 2)
    await jobs[0].complete()

    async with shop.batch(jobs) as batch:
        assert [job.id for job in batch.held] == [jobs[1].id]
        batch.complete(jobs[1])

    assert await shop.backend.jobs.verify(jobs[0].job.lease) is Standing.COMPLETED


async def test_a_handle_of_an_older_claim_cannot_end_the_job_of_a_newer_one(shop: App):
    (old,) = await claimed(shop, 1)
    await shop.jobs.reset(old.id)
    (new,) = await shop.claim("orders")

    with pytest.raises(LeaseLost):  # noqa: PT012 - the whole block is refused
        async with shop.batch([new]) as batch:
            await write(batch, new)
            batch.complete(old)

    assert await effects(shop) == []


async def test_a_batch_of_which_nothing_is_held_any_more_is_refused(shop: App):
    jobs = await claimed(shop, 2)
    for job in jobs:
        await shop.jobs.reset(job.id)

    with pytest.raises(LeaseLost, match="none of the 2 jobs"):
        async with shop.batch(jobs):
            pytest.fail("the block must not be entered")


async def test_an_end_that_the_job_has_had_inside_the_block_rolls_the_whole_batch_back(shop: App):
    jobs = await claimed(shop, 2)

    with pytest.raises(LeaseLost, match="1 jobs of the batch"):  # noqa: PT012 - the whole block is refused
        async with shop.batch(jobs) as batch:
            await write(batch, jobs[0])
            await jobs[1].fail("given up")  # joins the transaction
            for job in jobs:
                batch.complete(job)

    assert await effects(shop) == []
    assert [await state(shop, job) for job in jobs] == [JobState.RUNNING] * 2


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_commit_whose_reply_is_lost_is_asked_for_in_the_store(
    shop: App, monkeypatch: pytest.MonkeyPatch, is_written: bool
):
    (job,) = await claimed(shop, 1)
    commit = SqliteTransaction.commit_transaction

    async def commit_and_lose_the_reply(transaction: SqliteTransaction) -> None:
        if is_written:
            await commit(transaction)
        raise OutcomeUnknown("the reply was lost")

    async def run() -> None:
        async with shop.batch([job]) as batch:
            await write(batch, job)
            batch.complete(job)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteTransaction, "commit_transaction", commit_and_lose_the_reply)
        if is_written:
            await run()
        else:
            with pytest.raises(OutcomeUnknown):
                await run()

    assert await effects(shop) == ([job.id] if is_written else [])


async def test_a_failed_try_is_written_with_the_batch_and_the_last_one_fails_the_job(shop: App):
    (job,) = await claimed(shop, 1)
    async with shop.batch([job]) as batch:
        batch.retry(job, "no luck")
    (again,) = await shop.claim("orders")
    assert again.job.attempt == 2

    async with shop.batch([again]) as batch:
        batch.retry(again, ValueError("still none"), delay=5)

    details = await shop.jobs.show(job.id)
    assert details.job.state is JobState.FAILED
    assert [attempt.outcome for attempt in details.attempts] == ["retried", "failed"]


async def test_a_job_of_which_nothing_is_noted_stays_held(shop: App):
    jobs = await claimed(shop, 2)

    async with shop.batch(jobs) as batch:
        batch.fail(jobs[0], "given up")

    assert [await state(shop, job) for job in jobs] == [JobState.FAILED, JobState.RUNNING]
    await jobs[1].complete()


async def test_what_is_enqueued_inside_a_batch_comes_to_be_only_if_it_commits(shop: App):
    (job,) = await claimed(shop, 1)

    with pytest.raises(ValueError, match="no"):  # noqa: PT012 - the whole block is refused
        async with shop.batch([job]):
            made = await shop.enqueue("charge", order_id=7)
            raise ValueError("no")

    assert [found.id for found in (await shop.jobs.list("ready")).jobs] == []
    assert made.id


async def test_mistakes_are_refused_in_words(shop: App, tmp_path):
    jobs = await claimed(shop, 2)
    with pytest.raises(ConfigError, match="at least one"):
        async with shop.batch([]):
            pass
    with pytest.raises(ConfigError, match="twice"):
        async with shop.batch([jobs[0], jobs[0]]):
            pass
    with pytest.raises(ConfigError, match="ends once"):  # noqa: PT012 - the whole block is refused
        async with shop.batch(jobs) as batch:
            batch.complete(jobs[0])
            batch.fail(jobs[0], "and failed too")
    other = App(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(ConfigError, match="another app"):
        async with other.batch(jobs):
            pass
