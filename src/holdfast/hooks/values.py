"""What observers receive: one frozen value for each thing that happened.

No value shows arguments, payloads or results in its repr, so that a log line of one has no secrets. Durations are
measured by the clock of this process.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec

from holdfast.model.event import StoredEvent
from holdfast.model.job import LeasedJob, NewJob
from holdfast.model.outcome import Failure, OutcomeWord
from holdfast.model.totals import Totals
from holdfast.store.values import Rescued

JobEndWord = OutcomeWord | Literal["aborted"]
HandlingEndWord = Literal["done", "failed", "interrupted"]


class JobEnqueue(msgspec.Struct, frozen=True):
    """`job.enqueue`: the store has accepted a job of this process.

    If it was enqueued in a transaction, it exists once that commits. `created` is False if the store kept a job that
    was there already; `job_id` is the id of that one.
    """

    job: NewJob
    job_id: str
    created: bool


class JobStart(msgspec.Struct, frozen=True):
    """`job.start`: an attempt begins; in a child process it may still have to wait for one."""

    job: LeasedJob
    worker_id: str


class JobEnd(msgspec.Struct, frozen=True):
    """`job.end`: an attempt has ended. `job.retry` and `job.fail` receive the same value.

    The outcome is written right after this; if the lease is lost meanwhile, the store refuses it. `aborted`: the
    worker broke the attempt off, because its lease was lost or the worker ends. `lost`: its child process died, or its
    worker over HTTP fell silent. Of workers over HTTP the server reports, without the arguments of the job.
    """

    job: LeasedJob
    worker_id: str
    outcome: JobEndWord
    duration: timedelta
    failure: Failure | None = None
    """What is stored about an attempt that failed."""
    error: BaseException | None = None
    """The exception, unless the handler ran in a child process."""
    delay: timedelta | None = None
    """The time until the next attempt, if there is one."""
    is_asked: bool = False
    """Whether the handler asked for the next attempt by `raise Retry(…)`: that is no failure."""


class JobRescue(msgspec.Struct, frozen=True):
    """`job.rescue`: jobs were taken from a dead or silent worker; `why` in words, and the new state of each job.

    `reason`: their leases had expired, or the supervisor of the worker knew that its process had died.
    """

    worker_id: str
    why: str
    jobs: tuple[Rescued, ...]
    reason: Literal["expired", "died"] = "expired"


class JobClaim(msgspec.Struct, frozen=True):
    """`job.claim`: the store has answered a claim of a worker with this many jobs; `queues` None: it serves all."""

    worker_id: str
    queues: tuple[str, ...] | None
    number: int
    duration: timedelta


class JobFlush(msgspec.Struct, frozen=True):
    """`job.flush`: the store has answered the write of this many outcomes; `queues` None: the worker serves all."""

    worker_id: str
    queues: tuple[str, ...] | None
    number: int
    duration: timedelta


class LeaseExtend(msgspec.Struct, frozen=True):
    """`lease.extend`: a worker has extended the leases of jobs in these queues, one item per lease.

    `margin` is the shortest time that was left of one of them when the request was sent.
    """

    worker_id: str
    queues: tuple[str, ...]
    margin: timedelta


class LeaseLoss(msgspec.Struct, frozen=True):
    """`lease.lose`: a worker has lost the lease of a job, so that the outcome of this attempt does not count.

    `found_by`: the call that the store refused, the extension of the lease or the write of the outcome.
    """

    worker_id: str
    job: LeasedJob
    found_by: Literal["extend", "finish"]


class WorkerStart(msgspec.Struct, frozen=True):
    """`worker.start`: a process has opened its store and begins to run jobs, consumers or both.

    `name` is "worker <id>", or "node <id>" if it runs only consumers; `store` is the URL without a password. `seat` is
    the number of the process under its supervisor, from 0.
    """

    name: str
    store: str
    seat: int = 0


class WorkerDrain(msgspec.Struct, frozen=True):
    """`worker.drain`: a process was asked to end, and begins nothing new."""

    name: str


class WorkerReport(msgspec.Struct, frozen=True):
    """`worker.report`: what a process does now and has done so far; four times per second and at its end.

    `seat` is the number of the process under its supervisor, from 0. `slots` is 0 without a worker. `buffered` is the
    number of outcomes that are not written yet, `since_turn` the time since the worker last decided what to do (None
    without a worker). `is_extending`: the threads that extend leases are alive; `is_connected`: their last calls of the
    store succeeded.
    """

    name: str
    seat: int
    slots: int
    running: int
    totals: Totals
    partitions: int
    events: int
    queues: tuple[str, ...] | None = None
    is_draining: bool = False
    buffered: int = 0
    since_turn: timedelta | None = None
    is_extending: bool = True
    is_connected: bool = True


class WorkerEnd(msgspec.Struct, frozen=True):
    """`worker.end`: a process has ended its work; `totals` is None if it ran only consumers."""

    name: str
    totals: Totals | None


class HandlingStart(msgspec.Struct, frozen=True):
    """`event.start`: a consumer's handler is called with one event or a batch."""

    consumer: str
    events: tuple[StoredEvent, ...]
    attempt: int


class HandlingEnd(msgspec.Struct, frozen=True):
    """`event.end`: a consumer's handler has ended.

    `interrupted`: the events were neither handled nor did they fail; this node or the next owner handles them again.
    """

    consumer: str
    events: tuple[StoredEvent, ...]
    attempt: int
    outcome: HandlingEndWord
    duration: timedelta
    error: BaseException | None = None


class PartitionMove(msgspec.Struct, frozen=True):
    """`partition.move`: what happened to partitions of a consumer on this node, in words."""

    consumer: str
    category: str
    partitions: tuple[int, ...]
    change: str


class StoreFailure(msgspec.Struct, frozen=True):
    """`store.fail`: a call of the worker failed and will be repeated. `store.recover`: the first success after that."""

    what: str
    error: BaseException | None = None
