"""What a person does to jobs is answered alike by every store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.app.capability import needs

from holdfast import App, ConfigError, JobNotFound, JobState
from holdfast.model.ids import new_id

# The last two are read as UUIDs by PostgreSQL alone.
NO_IDS = ["nobody", "", "'; drop table job; --", "a\0b", "\ud800", "x" * 100_000, "0" * 36, "{known}", "{dashless}"]


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


@pytest.fixture
def send(app: App):
    @app.task(queue="mail")
    async def send(n: int) -> int:
        return n

    return send


async def test_a_copy_has_all_that_its_original_was_enqueued_with(app: App, send):
    job = await send.options(
        queue="late", priority=3, max_attempts=2, timeout=1.5, headers={"trace": "x"}, order_key="customer-3"
    ).enqueue(n=7)

    original, copy = await job.details(), await app.jobs.show(await app.jobs.copy(job.id))

    assert copy.job.id != job.id
    assert (copy.timeout, copy.headers, copy.payload) == (1.5, {"trace": "x"}, original.payload)
    assert (copy.job.queue, copy.job.task, copy.job.priority) == ("late", "send", 3)
    assert (copy.job.max_attempts, copy.job.order_key) == (2, "customer-3")


async def test_a_copy_of_a_job_without_options_has_none(app: App, send):
    job = await send.enqueue(n=7)

    copy = await app.jobs.show(await app.jobs.copy(job.id))

    assert (copy.timeout, copy.headers, copy.job.order_key, copy.job.priority) == (None, {}, None, 0)


@pytest.mark.parametrize("text", NO_IDS)
async def test_what_is_no_job_id_is_a_job_that_is_not_there(app: App, send, text: str):
    known = (await send.enqueue(n=1)).id
    job_id = text.replace("{known}", f"{{{known}}}").replace("{dashless}", known.replace("-", ""))

    jobs, handle = app.jobs, app.job(job_id)
    for call in (jobs.show, jobs.cancel, jobs.retry, jobs.reset, jobs.copy):
        with pytest.raises(JobNotFound, match=r"^there is no job .{,60}: a job id looks like 0") as told:
            await call(job_id)
        str(told.value).encode()  # it can be shown and logged
    for ask in (handle.state, handle.details, handle.cancel, handle.wait, handle.result):
        with pytest.raises(JobNotFound):
            await ask()
    with pytest.raises(JobNotFound):
        await app.job(new_id()).result()
    assert await app.job(known).state() is JobState.READY


async def test_to_ask_for_what_is_no_job_id_does_not_harm_the_transaction_around_it(app: App, send):
    needs(app, "join transactions")
    await send.enqueue(n=1)
    (held,) = await app.claim("mail")
    ctx = held.context()

    async with ctx.transaction():
        with pytest.raises(JobNotFound):
            await app.jobs.show("nobody")
        with pytest.raises(JobNotFound):
            await app.job("nobody").result()
        ctx.result = "done"

    assert await app.job(held.id).result() == "done"


@pytest.mark.parametrize("priority", [-100_000, 100_000])
@pytest.mark.parametrize("run_at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_a_job_of_the_first_or_the_last_instant_of_all_is_listed_and_shown(app: App, send, run_at, priority: int):
    job = await send.options(run_at=run_at, priority=priority).enqueue(n=1)

    details = await job.details()

    assert details.job.run_at == run_at
    assert (await app.jobs.list(details.job.state)).jobs == [details.job]


async def test_the_largest_limit_is_one_that_every_call_can_take(app: App, send):
    needs(app, "keep streams")
    await send.enqueue(n=1)
    await app.append("orders", stream="a", name="placed")

    most = 1_000_000_000
    assert len((await app.jobs.list("ready", limit=most)).jobs) == 1
    assert len(await app.claim("mail", most)) == 1
    for state in JobState:
        assert len((await app.jobs.list(state, limit=most)).jobs) == (state is JobState.RUNNING)
    assert len(await app.leases(most)) == 1
    assert await app.rescue(most) == []
    assert len(await app.read("orders", limit=most)) == 1
    assert len(await app.read("orders", stream="a", limit=most)) == 1
    assert await app.trim("orders", older_than=60, limit=most) == 0


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("cursor", [5, "x", "\ud800", "a\0b", "9" * 40, f"{'9' * 40}/1", f"1/{'9' * 40}", "1/2/3"])
async def test_a_cursor_that_no_page_has_given_is_refused_by_every_store(app: App, state: JobState, cursor):
    with pytest.raises(ConfigError, match=r"pass page\.cursor, or leave it out"):
        await app.jobs.list(state, cursor=cursor)
