"""What a handler records of its attempt, and how it writes its effect."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import LeaseLost, OutcomeUnknown
from holdfast.jobs.context import Context
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.torture.events import AttemptBegan, AttemptEnded, LeaseLostSeen, ObservedOutcome
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import recording, target


@contextmanager
def attempt(ctx: Context) -> Generator[None]:
    """Record the start and the end of a handler."""
    job = ctx.job
    recorder.write(
        AttemptBegan(
            at_us=now_us(),
            job=job.id,
            fence=job.fence,
            attempt=job.attempt,
            used=job.used_attempts,
            worker=recording.worker_of(job.fence),
            queue=job.queue,
            task=job.task,
            isolated=job.lost > 0,
        )
    )
    try:
        yield
    except BaseException as error:
        if isinstance(error, LeaseLost):
            recorder.write(LeaseLostSeen(at_us=now_us(), job=job.id, fence=job.fence))
        _ended(ctx, _observed(ctx, error), error)
        raise
    _ended(ctx, ObservedOutcome.COMPLETED)


def _ended(ctx: Context, observed: ObservedOutcome, error: BaseException | None = None) -> None:
    job = ctx.job
    delay = error.delay if isinstance(error, Retry | Snooze) else None
    recorder.write(
        AttemptEnded(
            at_us=now_us(),
            job=job.id,
            fence=job.fence,
            attempt=job.attempt,
            observed=observed,
            delay_us=round(delay * 1_000_000) if isinstance(delay, float | int) else 0,
            error="" if error is None else type(error).__name__,
        )
    )


def _observed(ctx: Context, error: BaseException) -> ObservedOutcome:
    match error:
        case Snooze():
            return ObservedOutcome.SNOOZED
        case Cancel():
            return ObservedOutcome.CANCELLED
        case LeaseLost():
            return ObservedOutcome.LEASE_LOST
        case OutcomeUnknown():
            return ObservedOutcome.UNKNOWN
        case asyncio.CancelledError():
            return ObservedOutcome.INTERRUPTED
        case _:
            return ObservedOutcome.FAILED if ctx.job.is_last_attempt else ObservedOutcome.RETRIED


def insert_into(name: str) -> str:
    """Return the statement that inserts an effect or a step; neither table has a unique constraint."""
    return target().statements[f"insert_{name}"]


def row(job: LeasedJob) -> tuple[str, int, int, str]:
    """Return the effect row of a job."""
    return (job.id, job.attempt, job.fence, recording.worker_of(job.fence))


async def take_effect(ctx: Context) -> None:
    """Write the effect and complete the job, in one transaction."""
    async with ctx.transaction() as connection:
        await connection.execute(insert_into("effect"), row(ctx.job))


async def take_effect_and_fail(ctx: Context, error: Exception) -> None:
    """Write the effect and raise before the transaction ends: it must be rolled back."""
    async with ctx.transaction() as connection:
        await connection.execute(insert_into("effect"), row(ctx.job))
        raise error


def take_effect_and_fail_blocking(ctx: Context, error: Exception) -> None:
    """The same, in a thread."""
    with ctx.sync.transaction() as connection:
        connection.execute(insert_into("effect"), row(ctx.job))
        raise error


def take_effect_blocking(ctx: Context) -> None:
    """The same, in a thread."""
    with ctx.sync.transaction() as connection:
        connection.execute(insert_into("effect"), row(ctx.job))
