"""One run of a batch: from the stored arguments of its jobs to their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.errors import ConfigError
from holdfast.jobs.call import Call, EndRules
from holdfast.jobs.run import outcome_of_error, outcome_of_return, outcome_of_timeout
from holdfast.jobs.task import Task
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Outcome
from holdfast.runtime.handler_checks import undone_reason
from holdfast.runtime.handler_runner import TimeLimitReached


def calls_of_jobs(task: Task, jobs: Sequence[LeasedJob]) -> tuple[list[Call[Any]], dict[int, Outcome]]:
    """Return the calls of a batch, and by seq the outcomes of jobs whose arguments do not match: those fail alone."""
    rules = EndRules(partial(outcome_of_return, task), partial(_raised, task))
    unread: dict[int, Outcome] = {}
    arguments = task.signature.decode_only("argument", [job.payload for job in jobs])
    if arguments is not None:
        return [Call(job, argument, rules) for job, argument in zip(jobs, arguments, strict=True)], unread
    calls: list[Call[Any]] = []
    for job in jobs:
        try:
            args, kwargs = task.signature.decode(job.payload)
        except Exception as error:  # noqa: BLE001 - every error of one job is its own
            unread[job.seq] = outcome_of_error(task, job, error)
        else:
            calls.append(Call(job, kwargs["argument"] if kwargs else args[0], rules))
    return calls, unread


def _raised(task: Task, job: LeasedJob, error: BaseException) -> Outcome:
    if isinstance(error, TimeLimitReached):
        return outcome_of_timeout(task, job, error.limit)
    return outcome_of_error(task, job, error)


def check_returned(task: Task, value: object) -> None:
    """Raise `ConfigError` if a handler of batches has returned a value: it would belong to no job."""
    reason = undone_reason(value)
    if reason is not None:
        raise ConfigError(f"task {task.name!r} {reason}")
    if value is not None:
        raise ConfigError(
            f"task {task.name!r} returned a value of type {type(value).__name__}, which belongs to no job of the "
            "batch: set call.result = … for each call, and return nothing"
        )
