"""How an attempt ends, and what becomes of the job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.app.work import ended, run_all, working

from holdfast import App, ByException, Cancel, Context, Exponential, Fixed, JobState, Linear, Retry, Snooze

Enqueue = Callable[..., Any]


def outcomes(details: Any) -> list[str]:
    return [attempt.outcome for attempt in details.attempts]


async def test_an_error_is_tried_again_until_the_attempts_are_used_up(app: App):
    attempts: list[int] = []

    @app.task(max_attempts=3, retry=0.01)
    async def breaks(ctx: Context) -> None:
        attempts.append(ctx.job.attempt)
        raise ValueError(f"try {ctx.job.attempt}")

    job = await breaks.enqueue()
    worker = await run_all(app)

    details = await job.details()
    assert attempts == [1, 2, 3]
    assert (details.job.state, details.job.reason) == (JobState.FAILED, "ValueError: try 3")
    assert outcomes(details) == ["retried", "retried", "failed"]
    assert [attempt.message for attempt in details.attempts] == ["try 1", "try 2", "try 3"]
    assert {attempt.error_class for attempt in details.attempts} == {"ValueError"}
    assert len({attempt.signature for attempt in details.attempts}) == 1
    assert "raise ValueError" in str(details.attempts[0].traceback)
    assert (worker.status().totals.retried, worker.status().totals.failed) == (2, 1)


async def test_a_job_that_gets_well_completes(app: App):
    @app.task(retry=0.01)
    async def gets_well(ctx: Context) -> int:
        if ctx.job.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.job.attempt

    job = await gets_well.enqueue()
    await run_all(app)

    assert await job.result() == 3
    assert outcomes(await job.details()) == ["retried", "retried"]


async def test_retry_asks_for_another_attempt_after_its_own_delay(app: App):
    @app.task(max_attempts=2, retry=3600)
    async def asks(ctx: Context) -> str:
        if ctx.job.attempt == 1:
            raise Retry(0.01, "the other side is busy")
        return "done"

    job = await asks.enqueue()
    await run_all(app)

    assert await job.result() == "done"
    assert (await job.details()).attempts[0].message == "the other side is busy"


async def test_retry_without_a_delay_follows_the_policy_and_the_attempt_counts(app: App):
    @app.task(max_attempts=2, retry=0.01)
    async def asks() -> None:
        raise Retry

    job = await asks.enqueue()
    await run_all(app)

    assert await job.state() is JobState.FAILED
    assert outcomes(await job.details()) == ["retried", "failed"]


async def test_snooze_comes_back_and_does_not_count(app: App):
    seen: list[tuple[int, int]] = []

    @app.task(max_attempts=1)
    async def snoozes(ctx: Context) -> None:
        seen.append((ctx.job.attempt, ctx.job.used_attempts))
        if ctx.job.attempt < 4:
            raise Snooze(timedelta(milliseconds=5))

    job = await snoozes.enqueue()
    await run_all(app)

    assert seen == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert await job.state() is JobState.COMPLETED
    assert outcomes(await job.details()) == ["snoozed"] * 3


async def test_cancel_gives_the_job_up_for_good(app: App):
    @app.task
    async def gives_up() -> None:
        raise Cancel("the order was withdrawn")

    job = await gives_up.enqueue()
    await run_all(app)

    details = await job.details()
    assert (details.job.state, details.job.reason) == (JobState.CANCELLED, "the order was withdrawn")
    assert outcomes(details) == ["cancelled"]


@pytest.mark.parametrize("ending", [Retry(-1), Snooze(-1), Snooze("soon"), Retry(float("nan"))])  # type: ignore[arg-type]
async def test_an_ending_with_a_bad_delay_fails_the_attempt_and_not_the_worker(app: App, ending):
    @app.task(max_attempts=1)
    async def asks() -> None:
        raise ending

    @app.task
    async def fine() -> None: ...

    job = await asks.enqueue()
    other = await fine.enqueue()
    await run_all(app)

    assert await job.state() is JobState.FAILED
    assert await other.state() is JobState.COMPLETED


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        (0.2, 0.2),
        (timedelta(seconds=0.2), 0.2),
        (Fixed(0.2), 0.2),
        (Linear(0.2), 0.2),
        (Exponential(0.2, jitter="none"), 0.2),
        (lambda attempt, error: 0.2 * attempt, 0.2),
        (ByException({OSError: 0.2}, default=3600), 0.2),
    ],
)
async def test_a_retry_waits_as_its_policy_says(app: App, policy, least):
    starts: list[float] = []

    @app.task(max_attempts=2, retry=policy)
    async def breaks() -> None:
        starts.append(time.monotonic())
        raise ConnectionError("refused")

    await breaks.enqueue()
    await run_all(app)

    assert least <= starts[1] - starts[0] < least + 2


async def test_a_policy_per_exception_may_say_never_again(app: App):
    @app.task(retry=ByException({KeyError: None, LookupError: 0.01}))
    async def breaks(kind: str) -> None:
        raise {"key": KeyError, "index": IndexError}[kind]("x")

    never = await breaks.options(max_attempts=3).enqueue(kind="key")
    again = await breaks.options(max_attempts=3).enqueue(kind="index")
    await run_all(app)

    assert outcomes(await never.details()) == ["failed"]
    assert outcomes(await again.details()) == ["retried", "retried", "failed"]


async def test_a_function_decides_by_attempt_and_error(app: App):
    asked: list[tuple[int, str]] = []

    def policy(attempt: int, error: BaseException | None) -> float | None:
        asked.append((attempt, repr(error)))
        return None if attempt == 2 else 0.01

    @app.task(max_attempts=10, retry=policy)
    async def breaks() -> None:
        raise ValueError("x")

    job = await breaks.enqueue()
    await run_all(app)

    assert asked == [(1, "ValueError('x')"), (2, "ValueError('x')")]
    assert await job.state() is JobState.FAILED


async def test_a_policy_that_breaks_is_told_and_the_default_serves(app: App, caplog):
    @app.task(retry=lambda attempt, error: 1 / 0)
    async def breaks() -> None:
        raise ValueError("x")

    job = await breaks.enqueue()
    with caplog.at_level(logging.ERROR):
        async with working(app):
            while not (await job.details()).attempts:  # noqa: ASYNC110 - the store is the event here
                await asyncio.sleep(0.02)

    assert "ZeroDivisionError" in caplog.text
    view = (await job.details()).job
    assert view.state is JobState.SCHEDULED


async def test_an_attempt_past_its_time_limit_is_ended_and_tried_again(app: App):
    cleaned: list[int] = []

    @app.task(timeout=0.05, max_attempts=2, retry=0.01)
    async def sleeps(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.job.attempt)

    job = await sleeps.enqueue()
    await run_all(app)

    details = await job.details()
    assert details.job.state is JobState.FAILED
    assert cleaned == [1, 2]
    assert {attempt.error_class for attempt in details.attempts} == {"TimeLimit"}
    assert "time limit of 0.05 s" in str(details.attempts[0].message)


async def test_the_time_limit_of_a_job_goes_before_that_of_its_task(app: App):
    @app.task(timeout=60, max_attempts=1)
    async def sleeps() -> None:
        await asyncio.Event().wait()

    job = await sleeps.options(timeout=0.05).enqueue()
    await run_all(app)

    assert "time limit of 0.05 s" in str((await job.details()).attempts[0].message)


async def test_a_time_out_of_the_handlers_own_is_its_own_error(app: App):
    @app.task(timeout=60, max_attempts=1)
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    job = await impatient.enqueue()
    await run_all(app)

    assert (await job.details()).attempts[0].error_class == "TimeoutError"


async def test_a_handler_that_cancels_itself_has_failed(app: App):
    @app.task(max_attempts=1)
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    job = await cancels_itself.enqueue()
    async with working(app):
        assert await ended(job) is JobState.FAILED
    assert "cancelled by its own code" in str((await job.details()).attempts[0].message)
