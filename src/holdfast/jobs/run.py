"""One attempt: from the stored arguments to the outcome.

The worker decides where a handler runs; this module builds its arguments and translates its end into an outcome.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.errors import ConfigError, TransactionConflict
from holdfast.jobs.context import Context
from holdfast.jobs.task import Task
from holdfast.model.duration import to_span
from holdfast.model.isolation import MAX_CONFLICTS, pause_after_conflict
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import (
    COMPLETED,
    REASON_LIMIT,
    Cancel,
    Cancelled,
    Completed,
    Failed,
    Failure,
    Outcome,
    Retried,
    Retry,
    Snooze,
    Snoozed,
)
from holdfast.model.retry import DEFAULT, RetryPolicy, decide
from holdfast.runtime.failure import describe, describe_reason
from holdfast.runtime.handler_checks import undone_reason
from holdfast.runtime.payload import encode_result_or_reason, unkept_reason
from holdfast.runtime.text import clean
from holdfast.store.backend import Backend
from holdfast.store.values import Standing

_logger = logging.getLogger("holdfast.jobs")
_reported: set[str] = set()  # tasks whose results cannot be encoded; each is logged once
_unstored: set[str] = set()  # tasks that return a value after their transaction; each is logged once


class UnknownTask(msgspec.Struct, frozen=True):
    """Stands for a task that the app does not know: its jobs follow the default policy."""

    name: str
    retry: RetryPolicy = DEFAULT


def arguments_of(task: Task, job: LeasedJob, context: Context | None) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of the call, decoded to their annotated types, with the context if the handler takes one."""
    args, kwargs = task.signature.decode(job.payload)
    if context is not None and task.signature.context is not None:
        kwargs[task.signature.context] = context
    return args, kwargs


def outcome_of_return(task: Task, job: LeasedJob, value: object) -> Completed:
    """Return the outcome of a handler that returned.

    A result that cannot be stored does not fail the job; it is logged, once for each task in a process.
    """
    if value is None:
        return COMPLETED
    result = encode_result_or_reason(value)
    reason = unkept_reason(result)
    if reason is not None and task.name not in _reported:
        _reported.add(task.name)
        _logger.warning(
            "task %s: job %s is completed, but %s (return plain values, a dataclass or None; logged once per task)",
            task.name, job.id, reason,
        )  # fmt: skip
    return Completed(result)


def outcome_of_value(task: Task, job: LeasedJob, value: object) -> Outcome:
    """Return the outcome of a handler that returned, or a failure if it returned an awaitable or a generator.

    Never raises: if inspecting the value raises, that is an error of the handler.
    """
    try:
        reason = undone_reason(value)
        if reason is None:
            return outcome_of_return(task, job, value)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - a hostile value must not break the worker
        return outcome_of_error(task, job, broken)
    return outcome_of_error(task, job, ConfigError(f"task {task.name!r} {reason}"))


def outcome_of_error(task: Task | UnknownTask, job: LeasedJob, error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised.

    Never raises: a `Snooze` or `Retry` whose delay is invalid or cannot be read is an error like others.
    """
    try:
        return _as_asked(task, job, error)
    except ConfigError as wrong:
        return _by_policy(task, job, wrong, describe(wrong))
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - a hostile exception must not break the worker
        unreadable = _unreadable(error, broken)
        return _by_policy(task, job, unreadable, describe(unreadable))


def _unreadable(ending: BaseException, broken: BaseException) -> ConfigError:
    """Return the error for an exception whose own class is broken, with the place where it was raised."""
    failure = describe(broken)
    name = type(ending).__name__
    wrong = ConfigError(
        f"{name} was raised to end the attempt, but cannot be read ({failure.error_class}: {failure.message}): "
        f"{name}.__init__ must call super().__init__ with the delay"
    )
    return wrong.with_traceback(ending.__traceback__)


def _as_asked(task: Task | UnknownTask, job: LeasedJob, error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(to_span(error.delay, "the delay of Snooze"))
        case Cancel():
            return Cancelled(clean(describe(error).message, REASON_LIMIT))
        case Retry() if error.delay is not None:
            return _again(job, to_span(error.delay, "the delay of Retry"), describe(error), is_asked=True)
        case _:
            return _by_policy(task, job, error, describe(error))


def outcome_of_timeout(task: Task, job: LeasedJob, limit: float) -> Outcome:
    """Return the outcome of an attempt that was ended at its time limit."""
    failure = describe_reason("TimeLimit", f"the attempt was ended at its time limit of {limit:g} s")
    return _by_policy(task, job, TimeoutError(failure.message), failure)


def _by_policy(task: Task | UnknownTask, job: LeasedJob, error: BaseException, failure: Failure) -> Outcome:
    decision = decide(task.retry, job.used_attempts, error=error, draw=random.random())  # noqa: S311 - jitter
    if decision.problem is not None:
        _logger.error("task %s, job %s: %s", task.name, job.id, decision.problem)
    if decision.delay is None:
        return Failed(failure)
    return _again(job, decision.delay, failure, is_asked=isinstance(error, Retry))


def _again(job: LeasedJob, delay: timedelta, failure: Failure, *, is_asked: bool) -> Outcome:
    return Failed(failure) if job.is_last_attempt else Retried(delay, failure, is_asked)


async def repeated(
    run: Callable[[], Awaitable[Outcome | None]],
    *,
    may_repeat: Callable[[], bool],
    failed: Callable[[TransactionConflict], Outcome | None],
) -> Outcome | None:
    """Run an attempt, and again after a conflict of its transaction; the repeats do not count as attempts.

    `failed` returns the outcome of a conflict after which no repeat follows: after `MAX_CONFLICTS` of them, or because
    `may_repeat` returns False.
    """
    conflicts = 0
    while True:
        try:
            return await run()
        except TransactionConflict as conflict:
            conflicts += 1
            if conflicts > MAX_CONFLICTS:
                return failed(conflict)
            _logger.debug("conflict %d of an attempt, which is repeated: %s", conflicts, conflict)
            await asyncio.sleep(pause_after_conflict(conflicts, random.random()))  # noqa: S311 - jitter
            if not may_repeat():
                return failed(conflict)


def is_completed(context: Context | None) -> bool:
    """Return whether the handler has completed the job itself, as far as it knows."""
    return context is not None and context.completed_by is not None


async def unless_settled(context: Context | None, backend: Backend, outcome: Outcome) -> Outcome | None:
    """Return the outcome to write, or None if the handler has completed the job in a transaction.

    A completion in the caller's own transaction counts only if that transaction has committed, so ask the store.
    """
    if context is None or context.completed_by is None:
        return outcome
    if context.completed_by == "using":
        if await backend.jobs.verify(context.job.lease) is not Standing.COMPLETED:
            context.uncompleted()
            return _uncommitted(context.job, outcome)  # if the lease is lost, the store refuses this too
        context.committed()
    if not isinstance(outcome, Completed):
        _logger.error(
            "job %s was completed by its own transaction, and then its handler raised%s",
            context.job.id,
            _raised(outcome),
        )
    elif outcome.result is not None and outcome.result != context.stored_text:
        _warn_of_unstored(context.job)
    return None


def _warn_of_unstored(job: LeasedJob) -> None:
    """Log that a returned value is not stored: its transaction has completed the job, which cannot be undone."""
    if job.task not in _unstored:
        _unstored.add(job.task)
        _logger.warning(
            "task %s: the value that its handler returned is not stored, because its transaction had completed job %s: "
            "set ctx.result = … inside the transaction block instead (logged once per task)",
            job.task, job.id,
        )  # fmt: skip


def _raised(outcome: Outcome) -> str:
    """Return what a handler raised, for the log: it is not stored, because the job is completed."""
    if not isinstance(outcome, Retried | Failed):
        return f": {outcome!r}"
    failure = outcome.failure
    return f" {failure.error_class}: {failure.message}\n{failure.traceback}".rstrip()


def _uncommitted(job: LeasedJob, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Completed):
        return outcome
    reason = "the handler called ctx.complete(using=…) and returned, but that transaction was not committed"
    failure = describe_reason("Uncommitted", reason)
    return Failed(failure) if job.is_last_attempt else Retried(timedelta(seconds=1), failure)
