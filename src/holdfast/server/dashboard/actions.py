"""What the forms do: each verb with the role that it needs, as a call of the app and a sentence about its result.

A form of a job repeats the state that its page showed. If the job has changed since then, the action is refused: the
tab is stale, and its viewer decided on an older state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.app.admin import copy_of
from holdfast.app.app import App
from holdfast.errors import ConfigError
from holdfast.model.counted import counted
from holdfast.server.access import Role
from holdfast.server.dashboard.forms import Form
from holdfast.server.dashboard.frame import ActionNotice
from holdfast.server.dashboard.read.job import seen_state
from holdfast.server.dashboard.read.streams import PositionChange, read_moves
from holdfast.server.problems import Problem
from holdfast.store.stream_values import StartAt
from holdfast.store.values import Cancellation

_RESET_WITHIN: Final = 10.0  # seconds: a person waits for the answer


class Action(msgspec.Struct, frozen=True):
    """A verb on one thing: `run` returns what to report to the viewer. `name` is that in the audit log.

    With a `question`, a page asks it first, and says what the `effect` is. `{}` is the thing.
    """

    name: str
    role: Role
    run: Callable[[App, str, Form], Awaitable[ActionNotice]]
    question: str = ""
    effect: str = ""
    has_reason: bool = False
    """Whether the viewer may give a reason, recorded in the audit log."""
    has_id: bool = False
    """Whether it enqueues a job, whose id is in the form: one that is sent twice enqueues one job."""
    moves: Callable[[App, str, Form], Awaitable[Sequence[PositionChange]]] | None = None
    """How the positions of a consumer would change, for the page that asks."""

    def detail(self, form: Form, notice: ActionNotice) -> str:
        """Return what the audit log says beyond name and target."""
        return form.get("reason") if self.has_reason and notice.kind == "ok" else notice.text


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


async def _run(app: App, job_id: str, form: Form) -> ActionNotice:
    await check_seen(app, job_id, form)
    return done("The job is due now.") if await app.jobs.run(job_id) else unchanged("The job is not scheduled.")


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
    copy = copy_of(await app.jobs.show(job_id), form.require("id"))
    (answer,) = await app.enqueue_new([copy])
    if answer is True:
        return done(f"A copy is enqueued: {copy.id}")
    return unchanged(f"The copy was enqueued already: {copy.id}")


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


async def _run_schedule(app: App, name: str, form: Form) -> ActionNotice:
    handle = await app.schedules.run(name, job_id=form.require("id"))
    if handle.created:
        return done(f"A job of schedule {name} is enqueued: {handle.id}")
    return unchanged(f"The job of schedule {name} was enqueued already: {handle.id}")


async def _pause_consumer(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.consumers.pause(name)
    return done(f"Consumer {name} is paused.") if changed else unchanged(f"Consumer {name} was paused already.")


async def _resume_consumer(app: App, name: str, _: Form) -> ActionNotice:
    changed = await app.consumers.resume(name)
    return done(f"Consumer {name} resumed.") if changed else unchanged(f"Consumer {name} was not paused.")


def _start_of(form: Form) -> StartAt:
    to = form.require("to")
    if to not in list(StartAt):
        raise ConfigError(f"to={to!r}: a consumer is reset here to its beginning or end")
    return StartAt(to)


async def _reset_moves(app: App, name: str, form: Form) -> Sequence[PositionChange]:
    return await read_moves(app, name, _start_of(form))


async def _reset_consumer(app: App, name: str, form: Form) -> ActionNotice:
    to = _start_of(form)
    try:
        await app.consumers.reset(name, to, within=_RESET_WITHIN)
    except TimeoutError as error:
        raise Problem(409, "still-held", str(error)) from error
    return done(f"Consumer {name} reads from the {to}.")


async def _retry_parked(app: App, name: str, _: Form) -> ActionNotice:
    return done(f"{counted(await app.consumers.retry_parked(name), 'parked event')} will be handled again.")


async def _drop_parked(app: App, name: str, _: Form) -> ActionNotice:
    return done(f"{counted(await app.consumers.drop_parked(name), 'parked event')} deleted.")


_RUNNING_GO_ON: Final = "No job of it is claimed until it is resumed. Those that run go on."
ON_JOBS: Final[Mapping[str, Action]] = {
    "retry": Action("job.retry", Role.OPERATE, _retry),
    "run": Action("job.run", Role.OPERATE, _run),
    "cancel": Action(
        "job.cancel",
        Role.OPERATE,
        _cancel,
        "Cancel job {}?",
        "If it waits, it ends now. If it runs, its worker is asked to abort it.",
        has_reason=True,
    ),
    "copy": Action(
        "job.copy",
        Role.OPERATE,
        _copy,
        "Run a copy of job {}?",
        "A new job with the same arguments is enqueued, and runs besides this one.",
        has_id=True,
    ),
    "delete": Action("job.delete", Role.ADMIN, _delete, "Delete job {}?", "It cannot be brought back."),
    "reset": Action(
        "lease.reset",
        Role.ADMIN,
        _reset,
        "Reset the lease of job {}?",
        "The job is ready again at once, and writes of the worker that holds it now are refused. "
        "What that worker does outside of the store is not undone, and may happen twice.",
    ),
}
ON_NAMES: Final[Mapping[str, Mapping[str, Action]]] = {
    "/queues": {
        "pause": Action("queue.pause", Role.OPERATE, _pause_queue, "Pause queue {}?", _RUNNING_GO_ON, has_reason=True),
        "resume": Action("queue.resume", Role.OPERATE, _resume_queue),
    },
    "/tasks": {
        "pause": Action(
            "task.pause", Role.OPERATE, _pause_task, "Pause task {} in all queues?", _RUNNING_GO_ON, has_reason=True
        ),
        "resume": Action("task.resume", Role.OPERATE, _resume_task),
    },
    "/schedules": {
        "pause": Action(
            "schedule.pause",
            Role.OPERATE,
            _pause_schedule,
            "Pause schedule {}?",
            "No job of it is enqueued until it is resumed. Times that pass meanwhile are left out.",
            has_reason=True,
        ),
        "resume": Action("schedule.resume", Role.OPERATE, _resume_schedule),
        "run": Action(
            "schedule.run",
            Role.OPERATE,
            _run_schedule,
            "Run a job of schedule {} now?",
            "One job is enqueued besides the times of the schedule, also if it is paused.",
            has_id=True,
        ),
    },
    "/streams": {
        "pause": Action(
            "consumer.pause",
            Role.OPERATE,
            _pause_consumer,
            "Pause consumer {}?",
            "It stops after the events in flight, and keeps its positions.",
            has_reason=True,
        ),
        "resume": Action("consumer.resume", Role.OPERATE, _resume_consumer),
        "reset": Action(
            "consumer.reset",
            Role.ADMIN,
            _reset_consumer,
            "Reset consumer {}?",
            "It is paused until its nodes have released their partitions, then reads from the new positions.",
            moves=_reset_moves,
        ),
        "retry_parked": Action("consumer.retry_parked", Role.OPERATE, _retry_parked),
        "drop_parked": Action(
            "consumer.drop_parked",
            Role.ADMIN,
            _drop_parked,
            "Drop all parked events of consumer {}?",
            "The consumer never handles them. The events themselves stay in their streams.",
        ),
    },
}
"""The verbs on things with names, by the path that their forms are sent to."""
