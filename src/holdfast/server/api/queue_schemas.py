"""How queues, tasks, workers and schedules are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.reports.states import ScheduleState
from holdfast.server.api.fields import Id, LeaseLength, Name, Request


class ShownLimit(msgspec.Struct, frozen=True):
    """How many jobs run at once, and at what rate they start."""

    running: int | None
    rate: str | None
    burst: int


class ShownQueue(msgspec.Struct, frozen=True):
    """A queue, and the number of its jobs in each state; `at_least`: the states of which there may be more."""

    name: str
    paused: bool
    ready: int
    scheduled: int
    blocked: int
    running: int
    failed: int
    oldest_ready_seconds: float | None
    at_least: list[str]
    limit: ShownLimit | None


class QueueList(msgspec.Struct, frozen=True):
    """All queues."""

    queues: list[ShownQueue]


class CountQuery(Request, frozen=True):
    """`most`: count at most about so many jobs of each queue, task and state."""

    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000


class BacklogQuery(Request, frozen=True):
    """How many jobs one worker is to have; by default as many as the live workers of the queue run at once."""

    jobs_per_worker: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Changed(msgspec.Struct, frozen=True):
    """`changed` is False if it was in that state already."""

    name: str
    changed: bool


class ShownTask(msgspec.Struct, frozen=True):
    """A task, and the number of its jobs in each state, over all queues; `at_least` as for a queue."""

    name: str
    paused: bool
    ready: int
    scheduled: int
    blocked: int
    running: int
    failed: int
    oldest_ready_seconds: float | None
    at_least: list[str]
    limit: ShownLimit | None
    key_limit: ShownLimit | None


class TaskList(msgspec.Struct, frozen=True):
    """All tasks that have had a job or a pause."""

    tasks: list[ShownTask]


class ShownWorker(msgspec.Struct, frozen=True):
    """A worker as of its last heartbeat."""

    worker_id: str
    state: Literal["live", "silent", "stopped"]
    host: str
    pid: int
    queues: list[str] | None
    tasks: list[str] | None
    running: int
    concurrency: int
    lease_seconds: float
    started_at: datetime
    silent_seconds: float
    supervisor_id: str | None


class ReportedWorker(Request, frozen=True):
    """What a worker runs: it is listed from now on, and counts as silent after the length of its lease."""

    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    tasks: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 1
    lease_seconds: LeaseLength = 30.0
    host: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class HeartbeatReceived(msgspec.Struct, frozen=True):
    """The worker whose heartbeat was received."""

    worker_id: str


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that have sent a heartbeat."""

    workers: list[ShownWorker]


class ShownSchedule(msgspec.Struct, frozen=True):
    """A schedule, without the arguments of its jobs."""

    name: str
    state: ScheduleState
    times: str
    timezone: str
    task: str
    queue: str
    owner: str | None
    last_at: datetime | None
    next_at: datetime | None


class ScheduleList(msgspec.Struct, frozen=True):
    """All schedules."""

    schedules: list[ShownSchedule]


class RunRequest(Request, frozen=True):
    """`id` of the job makes it safe to repeat."""

    id: Id | None = None
