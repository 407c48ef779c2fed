"""What a handler records of its attempt, and how it writes its effect."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

from holdfast.errors import LeaseLost, OutcomeUnknown, TransactionConflict
from holdfast.jobs.call import Call
from holdfast.jobs.context import Context
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Cancel, Retried, Retry, Snooze, Snoozed
from holdfast.torture.events import AttemptBegan, AttemptEnded, LeaseLostSeen, ObservedOutcome, Takes
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app, recording, target


@contextmanager
def attempt(ctx: Context) -> Generator[None]:
    """Record the start and the end of a handler."""
    job = ctx.job
    _began(job)
    try:
        yield
    except BaseException as error:
        if isinstance(error, LeaseLost):
            recorder.write(LeaseLostSeen(at_us=now_us(), job=job.id, fence=job.fence))
        _ended(job, _observed(job, error), error)
        raise
    _ended(job, ObservedOutcome.COMPLETED)


_repeated: set[tuple[str, int]] = set()  # calls whose handler begins again in the same attempt


@contextmanager
def batched_attempt(call: Call[Any]) -> Generator[None]:
    """Record the start and the end of a handler for one call of its batch.

    If the lease of another call is lost, the attempt continues: the handler is called again without that one.
    """
    job = call.job
    if (job.id, job.fence) not in _repeated:
        _began(job)
    _repeated.discard((job.id, job.fence))
    try:
        yield
    except (LeaseLost, TransactionConflict) as error:
        if isinstance(error, LeaseLost) and call.lease_lost:
            recorder.write(LeaseLostSeen(at_us=now_us(), job=job.id, fence=job.fence))
            _ended(job, ObservedOutcome.LEASE_LOST, error)
        else:
            _repeated.add((job.id, job.fence))
        raise
    except BaseException as error:
        _ended(job, _observed(job, error), error)
        raise
    match call.outcome():
        case Retried(delay):
            _ended(job, ObservedOutcome.RETRIED, delay=delay.total_seconds())
        case Snoozed(delay):
            _ended(job, ObservedOutcome.SNOOZED, delay=delay.total_seconds())
        case _:
            _ended(job, ObservedOutcome.COMPLETED)


def _began(job: LeasedJob) -> None:
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


def _ended(
    job: LeasedJob, observed: ObservedOutcome, error: BaseException | None = None, *, delay: object = None
) -> None:
    delay = error.delay if isinstance(error, Retry | Snooze) else delay
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


def _observed(job: LeasedJob, error: BaseException) -> ObservedOutcome:
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
            return ObservedOutcome.FAILED if job.is_last_attempt else ObservedOutcome.RETRIED


def insert_into(name: str) -> str:
    """Return the statement that inserts an effect or a step; neither table has a unique constraint."""
    return target().statements[f"insert_{name}"]


def row(job: LeasedJob) -> tuple[str, int, int, str]:
    """Return the effect row of a job."""
    return (job.id, job.attempt, job.fence, recording.worker_of(job.fence))


def put(connection: Any, table: str, job: LeasedJob) -> Any:
    """Write an effect or a step of a job through the connection of its transaction."""
    return target().write(connection, table, row(job), job.order_key or job.id)


async def write(connection: Any, table: str, job: LeasedJob) -> None:
    """The same, in an async handler."""
    written = put(connection, table, job)
    if isawaitable(written):
        await written


def writes_effects() -> bool:
    """Return whether effects are written: only in a transaction of the store, with the completion, are they once."""
    return app.backend.capabilities.commits_effects


def taken(takes: Takes) -> Takes:
    """Return where the effect of work is written on this store."""
    return takes if writes_effects() or takes is not Takes.TRANSACTION else Takes.NOTHING


async def take_effect(ctx: Context) -> None:
    """Write the effect and complete the job, in one transaction; nothing if the store has none for it."""
    if not writes_effects():
        return
    async with ctx.transaction() as connection:
        await write(connection, "effect", ctx.job)


async def take_effect_and_fail(ctx: Context, error: Exception) -> None:
    """Write the effect and raise before the transaction ends: it must be rolled back."""
    if not writes_effects():
        raise error
    async with ctx.transaction() as connection:
        await write(connection, "effect", ctx.job)
        raise error


def take_effect_and_fail_blocking(ctx: Context, error: Exception) -> None:
    """The same, in a thread."""
    if not writes_effects():
        raise error
    with ctx.sync.transaction() as connection:
        put(connection, "effect", ctx.job)
        raise error


def take_effect_blocking(ctx: Context) -> None:
    """The same, in a thread."""
    if not writes_effects():
        return
    with ctx.sync.transaction() as connection:
        put(connection, "effect", ctx.job)
