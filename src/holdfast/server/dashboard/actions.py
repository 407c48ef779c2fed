"""What the forms do: each verb with the role that it needs, as a call of the app and a sentence about its result.

A form of a job repeats the state that its page showed. If the job has changed since then, the action is refused: the
tab is stale, and its viewer decided on something else than what is there now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from holdfast.app.app import App
from holdfast.errors import ConfigError
from holdfast.reports.plural import counted
from holdfast.server.access import Role
from holdfast.server.dashboard.forms import Form
from holdfast.server.dashboard.frame import ActionNotice
from holdfast.server.dashboard.read.job import seen_state
from holdfast.server.problems import Problem
from holdfast.store.stream_values import StartAt
from holdfast.store.values import Cancellation

_RESET_WITHIN: Final = 10.0  # seconds: a person waits for the answer


class Action(msgspec.Struct, frozen=True):
    """A verb on one thing: `run` returns what to report to the viewer. `name` is that in the audit log."""

    name: str
    role: Role
    run: Callable[[App, str, Form], Awaitable[ActionNotice]]


def done(text: str) -> ActionNotice:
    """Return the report of an action that changed something."""
    return ActionNotice("ok", text)


def unchanged(text: str) -> ActionNotice:
    """Return the report of an action that found nothing to change."""
    return ActionNotice("warn", text)


# --- jobs -------------------------------------------------------------------------------------------------------------


async def check_seen(app: App, job_id: str, form: Form) -> None:
    """Raise `Problem` 409 if the job is not in the state any more that the viewer has seen."""
    details = await app.jobs.show(job_id)
    if form.require("seen") != seen_state(details):
        current = f"it is {details.job.state} now, at attempt {details.job.attempt}"
        message = f"the job has changed since this page was loaded: {current}. Look at it again, then decide"
        raise Problem(409, "stale-page", message, members={"job_id": details.job.id})


async def _retry(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    changed = await app.jobs.retry(job_id)
    return done("The job is ready again, with all its attempts.") if changed else unchanged("It could not be retried.")


async def _cancel(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    match await app.jobs.cancel(job_id, form.get("reason")):
        case Cancellation.CANCELLED:
            return done("The job is cancelled.")
        case Cancellation.ASKED:
            return done("Its worker is asked to abort it.")
        case Cancellation.TOO_LATE:
            return unchanged("The job had already ended.")


async def _copy(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    return done(f"A copy is enqueued: {await app.jobs.copy(job_id)}")


async def _delete(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    await app.jobs.delete(job_id)
    return done("The job is deleted.")


async def _reset(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    if await app.jobs.reset(job_id):
        return done("The lease is revoked: the job is ready again, and a write of its old holder is refused.")
    return unchanged("The job is not running.")


# --- queues, tasks, schedules, consumers ------------------------------------------------------------------------------


async def _pause_queue(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.queues.pause(name)
    return done(f"Queue {name} is paused.") if changed else unchanged(f"Queue {name} was paused already.")


async def _resume_queue(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.queues.resume(name)
    return done(f"Queue {name} is open.") if changed else unchanged(f"Queue {name} was not paused.")


async def _pause_task(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.tasks.pause(name)
    return done(f"Task {name} is paused in all queues.") if changed else unchanged(f"Task {name} was paused already.")


async def _resume_task(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.tasks.resume(name)
    return done(f"Task {name} is open.") if changed else unchanged(f"Task {name} was not paused.")


async def _pause_schedule(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.schedules.pause(name)
    return done(f"Schedule {name} is paused.") if changed else unchanged(f"Schedule {name} was paused already.")


async def _resume_schedule(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.schedules.resume(name)
    return done(f"Schedule {name} fires again.") if changed else unchanged(f"Schedule {name} was not paused.")


async def _run_schedule(app: App, name: str, _: Form) -> ActionNotice:
    return done(f"A job of schedule {name} is enqueued: {(await app.schedules.run(name)).id}")


async def _pause_consumer(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.consumers.pause(name)
    return done(f"Consumer {name} is paused.") if changed else unchanged(f"Consumer {name} was paused already.")


async def _resume_consumer(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.consumers.resume(name)
    return done(f"Consumer {name} goes on.") if changed else unchanged(f"Consumer {name} was not paused.")


async def _reset_consumer(app: App, name: str, form: Form) -> ActionNotice:
    to = form.require("to")
    if to not in list(StartAt):
        raise ConfigError(f"to={to!r}: a consumer is reset here to its beginning or end")
    try:
        await app.consumers.reset(name, StartAt(to), within=_RESET_WITHIN)
    except TimeoutError as error:
        raise Problem(409, "still-held", str(error)) from error
    return done(f"Consumer {name} reads from the {to}.")


async def _retry_parked(app: App, name: str, _: Form) -> ActionNotice:
    return done(f"{counted(await app.consumers.retry_parked(name), 'parked event')} will be handled again.")


async def _drop_parked(app: App, name: str, _: Form) -> ActionNotice:
    return done(f"{counted(await app.consumers.drop_parked(name), 'parked event')} deleted.")


ON_JOBS: Final[Mapping[str, Action]] = {
    "retry": Action("job.retry", Role.OPERATE, _retry),
    "cancel": Action("job.cancel", Role.OPERATE, _cancel),
    "copy": Action("job.copy", Role.OPERATE, _copy),
    "delete": Action("job.delete", Role.ADMIN, _delete),
    "reset": Action("lease.reset", Role.ADMIN, _reset),
}
ON_NAMES: Final[Mapping[str, Mapping[str, Action]]] = {
    "/queues": {
        "pause": Action("queue.pause", Role.OPERATE, _pause_queue),
        "resume": Action("queue.resume", Role.OPERATE, _resume_queue),
    },
    "/tasks": {
        "pause": Action("task.pause", Role.OPERATE, _pause_task),
        "resume": Action("task.resume", Role.OPERATE, _resume_task),
    },
    "/schedules": {
        "pause": Action("schedule.pause", Role.OPERATE, _pause_schedule),
        "resume": Action("schedule.resume", Role.OPERATE, _resume_schedule),
        "run": Action("schedule.run", Role.OPERATE, _run_schedule),
    },
    "/streams": {
        "pause": Action("consumer.pause", Role.OPERATE, _pause_consumer),
        "resume": Action("consumer.resume", Role.OPERATE, _resume_consumer),
        "reset": Action("consumer.reset", Role.ADMIN, _reset_consumer),
        "retry_parked": Action("consumer.retry_parked", Role.OPERATE, _retry_parked),
        "drop_parked": Action("consumer.drop_parked", Role.ADMIN, _drop_parked),
    },
}
"""The verbs on things with names, by the path that their forms are sent to."""
