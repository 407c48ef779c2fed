"""Results that JSON cannot carry: the work is done, and somebody is told."""

from __future__ import annotations

import logging

import pytest
from tests.app.work import run_all

from holdfast import App, JobState, PayloadError


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
