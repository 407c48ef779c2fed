"""What workers in other languages send and receive."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.server.api.fields import Duration, Fence, Id, Json, LeaseLength, Limit, Name, Request, Text, Wait, no_json
from holdfast.server.api.job_schemas import JobLease

MAX_LEASES = 500


class LeaseRef(Request, frozen=True):
    """A lease, as a claim returned it: send it back as it is."""

    job_id: Id
    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    fence: Fence


class ClaimBody(Request, frozen=True):
    """What a worker can run: jobs of these tasks in these queues.

    With `wait_seconds` the answer comes when there is a job, or after that time without one. `worker_id` names the
    worker in lists, and its claims count as heartbeats; without it each claim has a new one.
    """

    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    tasks: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    worker_id: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    lease_seconds: LeaseLength = 30.0
    wait_seconds: Wait = 0.0


class ClaimedJobView(msgspec.Struct, frozen=True):
    """A job to run, with its whole arguments."""

    id: str
    queue: str
    task: str
    args: list[Json]
    kwargs: dict[str, Json]
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    is_last_attempt: bool
    timeout_seconds: float | None
    order_key: str | None
    enqueued_at: datetime


class ClaimedLease(msgspec.Struct, frozen=True):
    """A leased job; the lease lasts `lease_seconds` from the moment of the claim."""

    lease: LeaseRef
    lease_seconds: float
    job: ClaimedJobView


class ClaimedLeases(msgspec.Struct, frozen=True):
    """What was claimed; nothing if there is nothing."""

    leases: list[ClaimedLease]


class ProgressReport(Request, frozen=True):
    """The progress of a job."""

    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    note: Text | None = None


class ExtendedItem(Request, frozen=True):
    """A lease to extend, and optionally the progress of its job."""

    lease: LeaseRef
    progress: ProgressReport | None = None


class ExtendBody(Request, frozen=True):
    """Leases to extend to so many seconds from now; with the `worker_id` of the claim, also a heartbeat."""

    leases: Annotated[list[ExtendedItem], Meta(min_length=1, max_length=MAX_LEASES)]
    worker_id: Name | None = None
    lease_seconds: LeaseLength = 30.0


class ExtendVerdict(msgspec.Struct, frozen=True):
    """`lost`: stop, another worker may run the job. `cancel`: extended, but the job is to be cancelled.

    `locked`: still held, but not extended, because a transaction uses it: extend again soon. An extended lease lasts
    `lease_seconds` from the moment of the request.
    """

    job_id: str
    verdict: Literal["extended", "cancel", "locked", "lost"]
    lease_seconds: float | None


class ExtendVerdicts(msgspec.Struct, frozen=True):
    """A verdict for each lease, in order."""

    verdicts: list[ExtendVerdict]


class ReportedError(Request, frozen=True, rename={"error_class": "class"}):
    """An error of a handler; errors of one class are grouped."""

    message: Text
    error_class: Annotated[str, Meta(min_length=1, max_length=256)] = "Failed"
    traceback: Text = ""


class AttemptEnd(Request, frozen=True):
    """How an attempt ended.

    `complete` with a `result`; `retry` with an `error`: the job runs again as the policy of its task says, or after
    `delay_seconds`, until its attempts are used up; `fail` with an `error`: it does not run again; `snooze` runs it
    again after `delay_seconds` without using an attempt; `cancel` with a `reason`.
    """

    outcome: Literal["complete", "retry", "fail", "snooze", "cancel"]
    result: Json = msgspec.field(default_factory=no_json)
    error: ReportedError | None = None
    delay_seconds: Duration | None = None
    reason: Text | None = None


class FinishedItem(AttemptEnd, frozen=True, kw_only=True):
    """How the attempt under a lease ended."""

    lease: LeaseRef


class FinishOneBody(AttemptEnd, frozen=True, kw_only=True):
    """How the attempt under a fence ended."""

    fence: Fence


class ExtendOneBody(Request, frozen=True):
    """The fence of the lease to extend to so many seconds from now, and optionally the progress of the job."""

    fence: Fence
    lease_seconds: LeaseLength = 30.0
    progress: ProgressReport | None = None


class FinishBody(Request, frozen=True):
    """Attempts that have ended."""

    leases: Annotated[list[FinishedItem], Meta(min_length=1, max_length=MAX_LEASES)]


class ReleaseBody(Request, frozen=True):
    """Leases to release: the jobs are ready again. `started`: their handlers had begun, which is recorded."""

    leases: Annotated[list[LeaseRef], Meta(min_length=1, max_length=MAX_LEASES)]
    started: bool = False


class LeaseVerdict(msgspec.Struct, frozen=True):
    """`lost`: the fence is stale, and nothing was written. A repeat of what was written is answered `done` again."""

    job_id: str
    verdict: Literal["done", "lost"]


class LeaseVerdicts(msgspec.Struct, frozen=True):
    """A verdict for each lease, in order."""

    verdicts: list[LeaseVerdict]


class LeaseQuery(Request, frozen=True):
    """Which leases to list."""

    limit: Limit = 100
    expired_only: bool = False


class LeaseList(msgspec.Struct, frozen=True):
    """Active leases, the next to expire first."""

    leases: list[JobLease]
