"""Queues, tasks, workers and schedules: list, pause and resume; and the backlog to scale workers by."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.reports.states import schedule_state, worker_state
from holdfast.server.api.fields import NoFields
from holdfast.server.api.job_schemas import EnqueuedJob
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, check_queues, check_worker
from holdfast.server.api.queue_schemas import (
    BacklogQuery,
    Changed,
    CountQuery,
    HeartbeatReceived,
    QueueList,
    ReportedWorker,
    RunRequest,
    ScheduleList,
    ShownLimit,
    ShownQueue,
    ShownSchedule,
    ShownTask,
    ShownWorker,
    TaskList,
    WorkerList,
)
from holdfast.server.api.shown import shown
from holdfast.store.schedules import ScheduleView
from holdfast.store.values import TaskView, WorkerHeartbeat, WorkerView
from holdfast.telemetry.backlog import Backlog, backlog


def _limit(limit: object) -> ShownLimit | None:
    return None if limit is None else shown(ShownLimit, limit)


# --- queues -----------------------------------------------------------------------------------------------------------


async def list_queues(call: ApiCall[CountQuery, NoFields]) -> Answer:
    """List all queues."""
    views = await call.app.queues.list(most=call.query.most)
    return Answer(
        QueueList([shown(ShownQueue, view, at_least=list(view.at_least), limit=_limit(view.limit)) for view in views])
    )


async def show_backlog(call: ApiCall[BacklogQuery, NoFields]) -> Answer:
    """Return how many jobs of a queue wait and run, for KEDA and other autoscalers.

    A queue that has had no job yet is empty. The figures are at most five seconds old.
    """
    return Answer(await backlog(call.app, call.path("queue"), jobs_per_worker=call.query.jobs_per_worker))


async def pause_queue(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Allow no claims from a queue."""
    queue = call.path("queue")
    return Answer(Changed(queue, await call.app.queues.pause(queue)))


async def resume_queue(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Allow claims from a queue again."""
    queue = call.path("queue")
    return Answer(Changed(queue, await call.app.queues.resume(queue)))


# --- tasks ------------------------------------------------------------------------------------------------------------


async def list_tasks(call: ApiCall[CountQuery, NoFields]) -> Answer:
    """List all tasks that have had a job or a pause."""
    return Answer(TaskList([_task(view) for view in await call.app.tasks.list(most=call.query.most)]))


def _task(view: TaskView) -> ShownTask:
    limits = {"limit": _limit(view.limit), "key_limit": _limit(view.key_limit)}
    return shown(ShownTask, view, at_least=list(view.at_least), **limits)


async def pause_task(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Allow no claims of the jobs of a task, in any queue."""
    task = call.path("task")
    return Answer(Changed(task, await call.app.tasks.pause(task)))


async def resume_task(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Allow claims of the jobs of a task again."""
    task = call.path("task")
    return Answer(Changed(task, await call.app.tasks.resume(task)))


# --- workers ----------------------------------------------------------------------------------------------------------


async def list_workers(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List the workers that have sent a heartbeat; claims over HTTP that name their worker count as one, with pid 0."""
    return Answer(WorkerList([_worker(view) for view in await call.app.workers()]))


async def report_worker(call: ApiCall[NoFields, ReportedWorker]) -> Answer:
    """Register a worker, and send its heartbeat: before its first claim, or while it does not extend.

    A worker that claims and extends with its `worker_id` need not report itself.
    """
    body, worker_id = call.body, call.path("worker")
    check_queues(call, body.queues)
    await check_worker(call, worker_id)
    peer = call.request.client
    await call.state.extending.heartbeat(
        WorkerHeartbeat(
            worker_id=worker_id,
            host=body.host or ("unknown" if peer is None else peer.host),
            pid=body.pid,
            queues=tuple(dict.fromkeys(body.queues)),
            concurrency=body.concurrency,
            lease=timedelta(seconds=body.lease_seconds),
            running=0,
            tasks=tuple(dict.fromkeys(body.tasks)),
        )
    )
    return Answer(HeartbeatReceived(worker_id))


def _worker(view: WorkerView) -> ShownWorker:
    last = view.heartbeat
    return shown(
        ShownWorker,
        last,
        state=worker_state(view),
        queues=None if last.queues is None else list(last.queues),
        tasks=None if last.tasks is None else list(last.tasks),
        running=view.running,
        started_at=view.started_at,
        silent_seconds=view.silent.total_seconds(),
    )


# --- schedules --------------------------------------------------------------------------------------------------------


async def list_schedules(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List all schedules."""
    return Answer(ScheduleList([_schedule(view) for view in await call.app.schedules.list()]))


async def show_schedule(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return one schedule."""
    return Answer(_schedule(await call.app.schedules.show(call.path("schedule"))))


def _schedule(view: ScheduleView) -> ShownSchedule:
    times, definition = view.definition.times, view.definition
    return shown(
        ShownSchedule,
        view,
        state=schedule_state(view),
        times=times.text(),
        timezone=times.timezone,
        task=definition.task,
        queue=definition.queue,
    )


async def pause_schedule(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Pause a schedule."""
    name = call.path("schedule")
    return Answer(Changed(name, await call.app.schedules.pause(name)))


async def resume_schedule(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Let a schedule fire again, from its next time on."""
    name = call.path("schedule")
    return Answer(Changed(name, await call.app.schedules.resume(name)))


async def run_schedule(call: ApiCall[NoFields, RunRequest]) -> Answer:
    """Enqueue a job of a schedule now, besides its times."""
    handle = await call.app.schedules.run(call.path("schedule"), job_id=call.body.id)
    return Answer(EnqueuedJob(handle.id, handle.created), 201 if handle.created else 200)


_QUEUE: Final = "/v1/queues/{queue}"
_TASK: Final = "/v1/tasks/{task}"
_SCHEDULE: Final = "/v1/schedules/{schedule}"
OPERATIONS: Final = (
    Operation("GET", "/v1/queues", list_queues, Need.READ, {200: QueueList}, query=CountQuery),
    Operation("GET", f"{_QUEUE}/backlog", show_backlog, Need.READ, {200: Backlog}, query=BacklogQuery),
    Operation("POST", f"{_QUEUE}/pause", pause_queue, Need.OPERATE, {200: Changed}),
    Operation("POST", f"{_QUEUE}/resume", resume_queue, Need.OPERATE, {200: Changed}),
    Operation("GET", "/v1/tasks", list_tasks, Need.READ, {200: TaskList}, query=CountQuery),
    Operation("POST", f"{_TASK}/pause", pause_task, Need.OPERATE, {200: Changed}),
    Operation("POST", f"{_TASK}/resume", resume_task, Need.OPERATE, {200: Changed}),
    Operation("GET", "/v1/workers", list_workers, Need.READ, {200: WorkerList}),
    Operation("PUT", "/v1/workers/{worker}", report_worker, Need.WORK, {200: HeartbeatReceived}, body=ReportedWorker),
    Operation("GET", "/v1/schedules", list_schedules, Need.READ, {200: ScheduleList}),
    Operation("GET", _SCHEDULE, show_schedule, Need.READ, {200: ShownSchedule}),
    Operation("POST", f"{_SCHEDULE}/pause", pause_schedule, Need.OPERATE, {200: Changed}),
    Operation("POST", f"{_SCHEDULE}/resume", resume_schedule, Need.OPERATE, {200: Changed}),
    Operation(
        "POST", f"{_SCHEDULE}/run", run_schedule, Need.OPERATE, {201: EnqueuedJob, 200: EnqueuedJob}, body=RunRequest
    ),
)
