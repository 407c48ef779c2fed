"""The names and attributes of spans: pure functions of what is sent or handled.

`messaging.*` and `error.type` are names of the semantic conventions of OpenTelemetry; others begin with `holdfast.`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Final

from holdfast.app.app import App
from holdfast.errors import TaskNotFound
from holdfast.hooks.middleware import HandlerCall
from holdfast.hooks.sending import SendCall
from holdfast.jobs.run import outcome_of_error
from holdfast.model.event import StoredEvent
from holdfast.model.job import Job, LeasedJob

Attributes = dict[str, str | int]
AttemptKey = Hashable
ERROR_TYPE: Final = "error.type"
OUTCOME: Final = "holdfast.outcome"
_SYSTEM: Final[Attributes] = {"messaging.system": "holdfast"}


def attributes_of_send(call: SendCall) -> tuple[str, Attributes]:
    """Return name and attributes of the span around an enqueue or append."""
    operation = "enqueue" if call.jobs else "append"
    tasks = {job.task for job in call.jobs}
    places = {job.queue for job in call.jobs} | {event.category for event in call.events}
    ids = [job.id for job in call.jobs] + [event.id for event in call.events]
    found = _SYSTEM | {"messaging.operation.type": "send", "messaging.operation.name": operation}
    if len(places) == 1:
        found["messaging.destination.name"] = next(iter(places))
    if len(tasks) == 1:
        found["holdfast.task"] = next(iter(tasks))
    found |= {"messaging.message.id": ids[0]} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
    named = tasks or places
    return (f"{operation} {next(iter(named))}" if len(named) == 1 else operation), found


def attributes_of_handler(call: HandlerCall) -> tuple[str, Attributes]:
    """Return name and attributes of the span of a handler."""
    found = _SYSTEM | {"messaging.operation.type": "process", "messaging.operation.name": "process"}
    found["holdfast.attempt"] = call.attempt
    ids = [job.id for job in call.jobs] + [event.id for event in call.events]
    found |= {"messaging.message.id": ids[0]} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
    if call.jobs:
        found |= {"messaging.destination.name": call.jobs[0].queue, "holdfast.task": call.name}
        fences = {job.fence for job in call.jobs if isinstance(job, LeasedJob)}
        found |= {"holdfast.fence": fences.pop()} if len(fences) == 1 else {}
    if call.events:
        found |= {
            "messaging.destination.name": call.events[0].category,
            "messaging.destination.partition.id": str(call.events[0].partition_id),
            "messaging.consumer.group.name": call.name,
        }
    return f"process {call.name}", found


def error_type(error: BaseException) -> str:
    """Return the name of an exception's class, as the conventions ask for it."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- which attempt ----------------------------------------------------------------------------------------------------


def key_of_job(job: Job) -> AttemptKey:
    """Return what identifies an attempt at a job."""
    return ("job", job.seq, job.fence if isinstance(job, LeasedJob) else job.attempt)


def key_of_events(consumer: str, events: Sequence[StoredEvent]) -> AttemptKey:
    """Return what identifies the handling of events: a share handles one batch at a time."""
    return ("events", consumer, events[0].category, events[0].partition_id)


def keys_of_call(call: HandlerCall) -> list[AttemptKey]:
    """Return the attempts that a call of a handler is part of."""
    return [key_of_job(job) for job in call.jobs] if call.jobs else [key_of_events(call.name, call.events)]


def outcome_in_child(app: App, call: HandlerCall, error: BaseException | None) -> str:
    """Return the outcome of a call in a child process, where it is not reported; the worker decides in the same way."""
    if isinstance(error, asyncio.CancelledError):
        return "aborted" if call.jobs else "interrupted"
    if not call.jobs:
        return "done" if error is None else "failed"
    job = call.jobs[0]
    if error is None or not isinstance(job, LeasedJob):
        return "completed" if error is None else "failed"
    try:
        task = app.tasks.get(call.name)
    except TaskNotFound:
        return "failed"
    return type(outcome_of_error(task, job, error)).__name__.lower()
