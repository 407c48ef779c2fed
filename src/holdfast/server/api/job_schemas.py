"""What requests about jobs contain, and how jobs are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.model.job import JobState
from holdfast.model.turn import MAX_PRIORITY
from holdfast.server.api.fields import Cursor, Duration, Headers, Id, Json, Key, Limit, Name, Request, Text, Wait

MAX_BATCH = 1000


class NewJobRequest(Request, frozen=True):
    """A job to enqueue.

    `args` and `kwargs` are the arguments of the call. If the app of the server knows the task, they are checked against
    its signature, and its defaults apply. `id` makes the enqueue safe to repeat.
    """

    task: Name
    args: list[Json] = msgspec.field(default_factory=list[Json])
    kwargs: dict[str, Json] = msgspec.field(default_factory=dict[str, Json])
    id: Id | None = None
    queue: Name | None = None
    delay_seconds: Duration | None = None
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=3_000_000_000)] | None = None
    headers: Headers | None = None
    order_key: Key | None = None
    limit_key: Key | None = None
    unique_key: Key | None = None
    unique: bool | None = None
    unique_for: Literal["waiting", "unfinished"] | Duration | None = None
    on_conflict: Literal["keep", "replace", "raise"] | None = None
    after: Annotated[list[Id], Meta(max_length=1000)] | None = None
    run_anyway: bool | None = None


class BatchRequest(Request, frozen=True):
    """Jobs to enqueue, all or none."""

    jobs: Annotated[list[NewJobRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class EnqueuedJob(msgspec.Struct, frozen=True):
    """`created` is False if the job existed: the request was a repeat, or that job holds the unique key."""

    id: str
    created: bool


class EnqueuedBatch(msgspec.Struct, frozen=True):
    """One answer for each job, in order."""

    jobs: list[EnqueuedJob]


class JobListQuery(Request, frozen=True):
    """Which jobs to list."""

    state: JobState
    queue: Name | None = None
    task: Name | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class ListedJobView(msgspec.Struct, frozen=True):
    """A job in a list, without its arguments."""

    id: str
    seq: int
    queue: str
    task: str
    state: JobState
    priority: int
    attempt: int
    used_attempts: int | None
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    reason: str | None
    order_key: str | None
    limit_key: str | None


class JobList(msgspec.Struct, frozen=True):
    """A page of jobs: waiting ones in the order in which they will run, others newest first.

    `cursor` leads to the next page; null: there is none.
    """

    jobs: list[ListedJobView]
    cursor: str | None


class ShownErrorGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one task with the same error; `error` is the latest of them."""

    task: str
    error: str
    jobs: int
    last_at: datetime


class ErrorList(msgspec.Struct, frozen=True):
    """Groups of the latest failed jobs, `looked_at` in all; `is_cut`: there are more failed jobs."""

    groups: list[ShownErrorGroup]
    looked_at: int
    is_cut: bool


class JobAttempt(msgspec.Struct, frozen=True):
    """An attempt that has ended, and the fence of its lease."""

    attempt: int
    fence: str
    worker_id: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    error_class: str | None
    message: str | None
    traceback: str | None
    signature: str | None


class JobLease(msgspec.Struct, frozen=True):
    """An active lease; `expires_in_seconds` is negative once it has expired and was not yet rescued."""

    job_id: str
    seq: int
    fence: str
    queue: str
    task: str
    worker_id: str
    attempt: int
    started_at: datetime
    expires_in_seconds: float
    isolated: bool
    cancel_asked: bool
    percent: float | None
    note: str | None


class ShowQuery(Request, frozen=True):
    """`arguments`: also arguments, headers and result, redacted."""

    arguments: bool = False


class ShownArguments(msgspec.Struct, frozen=True):
    """What a job was called with, and what its handler returned; values under suspicious names are redacted."""

    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any]
    result: Any


class ShownJob(msgspec.Struct, frozen=True):
    """Everything about a job."""

    job: ListedJobView
    timeout_seconds: float | None
    unique_key: str | None
    lease: JobLease | None
    attempts: list[JobAttempt]
    arguments: ShownArguments | None = None


class WaitQuery(Request, frozen=True):
    """How long to wait for the end of the job."""

    wait_seconds: Wait = 0.0


class WaitedJob(msgspec.Struct, frozen=True):
    """The state of a job, and whether it has ended."""

    id: str
    state: JobState
    ended: bool


class JobResult(msgspec.Struct, frozen=True):
    """What the handler of a completed job returned, as JSON, not redacted."""

    id: str
    result: Any


class ReasonRequest(Request, frozen=True):
    """Why; it is stored with the job."""

    reason: Text = ""


class CancelledJob(msgspec.Struct, frozen=True):
    """`asked`: the job runs, and its worker has been asked to abort it; `too_late`: it had ended."""

    id: str
    verdict: Literal["cancelled", "asked", "too_late"]


class ChangedJob(msgspec.Struct, frozen=True):
    """`changed` is False if the job was in a state in which this does nothing."""

    id: str
    changed: bool


class CopyRequest(Request, frozen=True):
    """`id` makes it safe to repeat."""

    id: Id | None = None


class ExplainedJob(msgspec.Struct, frozen=True):
    """Why a job is not running: the name of the cause, and its details."""

    id: str
    state: JobState
    queue: str
    task: str
    cause: str
    details: dict[str, Any]


class GraphQuery(Request, frozen=True):
    """At most how many jobs."""

    limit: Limit = 200


class GraphNode(msgspec.Struct, frozen=True):
    """A job of a graph, with the ids of the jobs that it comes after."""

    id: str
    seq: int
    queue: str
    task: str
    state: JobState
    parents: list[str]


class ShownGraph(msgspec.Struct, frozen=True):
    """The jobs that are connected with one; `is_cut`: there are more."""

    jobs: list[GraphNode]
    is_cut: bool
