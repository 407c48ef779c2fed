"""Results that JSON cannot carry: the work is done, and somebody is told."""

from __future__ import annotations

import logging

import pytest
from tests.app.work import run_all

from holdfast import App, Context, JobState, PayloadError


class Opaque: ...


def told_by_jobs(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of jobs; a store says what it has to say once in a process, be it here or elsewhere."""
    return sorted(record.getMessage() for record in caplog.records if record.name == "holdfast.jobs")


async def test_a_result_that_cannot_be_kept_is_told_of_once_for_each_task(app: App, caplog):
    @app.task(name=f"opaque-{id(app)}")
    async def opaque() -> Opaque:
        return Opaque()

    @app.task(name=f"plain-{id(app)}")
    def plain() -> Opaque:
        return Opaque()

    jobs = [*await opaque.enqueue_many([{}, {}]), *await plain.enqueue_many([{}, {}])]
    with caplog.at_level(logging.WARNING, "holdfast.jobs"):
        await run_all(app)

    assert {await job.state() for job in jobs} == {JobState.COMPLETED}
    told = told_by_jobs(caplog)
    assert len(told) == 2
    assert f"task opaque-{id(app)}" in told[0]
    assert "is completed, but the result cannot be encoded: Opaque cannot be encoded as JSON" in told[0]
    assert "return plain values, a dataclass or None" in told[0]
    assert f"task plain-{id(app)}" in told[1]
    with pytest.raises(PayloadError, match="Opaque cannot be encoded"):
        await jobs[0].result()


async def test_a_result_that_can_be_kept_is_not_told_of(app: App, caplog):
    @app.task
    async def numbers() -> list[int]:
        return [1, 2]

    job = await numbers.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast.jobs"):
        await run_all(app)

    assert await job.result() == [1, 2]
    assert told_by_jobs(caplog) == []


async def test_a_value_returned_after_the_transaction_is_not_stored_and_the_log_says_so_once(file_app: App, caplog):
    @file_app.task(name="returns_late")
    async def charge(ctx: Context, n: int) -> int:
        async with ctx.transaction():
            pass
        return n

    jobs = await charge.enqueue_many([charge.call(1), charge.call(2)])
    with caplog.at_level(logging.WARNING, "holdfast.jobs"):
        await run_all(file_app)

    assert [await file_app.job(job.id).result() for job in jobs] == [None, None]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "holdfast.jobs"]
    assert warning.startswith("task returns_late: the value that its handler returned is not stored")
    assert "set ctx.result = … inside the transaction block" in warning


async def test_a_value_that_is_the_result_too_may_be_returned(file_app: App, caplog):
    @file_app.task(name="returns_the_same")
    async def charge(ctx: Context, how: str) -> dict[str, int]:
        receipt = {"number": 7}
        async with ctx.transaction():
            ctx.result = receipt
        return receipt if how == "same" else {"number": 7}

    jobs = await charge.enqueue_many([charge.call("same"), charge.call("equal")])
    with caplog.at_level(logging.WARNING, "holdfast.jobs"):
        await run_all(file_app)

    assert [await job.result() for job in jobs] == [{"number": 7}, {"number": 7}]
    assert not [record for record in caplog.records if record.name == "holdfast.jobs"]
