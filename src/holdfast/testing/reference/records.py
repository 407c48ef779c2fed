"""The state of the reference model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.model.attempt_records import KEEP_FIRST, KEEP_LAST
from holdfast.model.budget import Counters
from holdfast.model.conditions import Unique
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import FINAL_STATES, JobState, Lease, LeasedJob, NewJob
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Outcome
from holdfast.model.turn import turn_of
from holdfast.store.values import AttemptView, WorkerHeartbeat

if TYPE_CHECKING:
    from holdfast.testing.reference.unique import ReferenceKey


@dataclass(slots=True)
class ReferenceLease:
    """An active lease: worker, fence and expiry."""

    fence: int
    worker_id: str
    started_us: int
    expires_us: int
    duration_us: int
    isolated: bool
    percent: float | None = None
    note: str | None = None


@dataclass(slots=True)
class ReferenceJob:
    """The complete state of a job."""

    new: NewJob
    size: int
    seq: int
    state: JobState
    enqueued_us: int
    run_us: int
    turn_us: int
    place: int
    counters: Counters = field(default_factory=Counters)
    lease: ReferenceLease | None = None
    retrying: bool = False
    cancel_reason: str | None = None
    finished_us: int | None = None
    reason: str | None = None
    result: str | None = None
    ended_by: dict[int, type[Outcome]] = field(default_factory=dict[int, type[Outcome]])
    completed_by: int | None = None
    completed_under: ReferenceLease | None = None
    attempts: list[AttemptView] = field(default_factory=list[AttemptView])
    waits: bool = False  # blocked by its parents, and in no order key's line
    is_broken: bool = False  # cancelled because of a parent
    admission: int | None = None  # the number of its admission by its limit key
    admitted_us: int | None = None  # None if its start is counted, or need not be
    last_start: int | None = None  # of an attempt that has ended, and is not counted yet

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL_STATES

    @property
    def order_scope(self) -> tuple[str, str] | None:
        """The queue and order key of the job; jobs of one pair are ordered by `place`."""
        return None if self.new.order_key is None else (self.new.queue, self.new.order_key)

    @property
    def limit_scope(self) -> tuple[str, str, str] | None:
        """The queue, task and limit key of the job."""
        return None if self.new.limit_key is None else (self.new.queue, self.new.task, self.new.limit_key)

    @property
    def unique(self) -> Unique | None:
        """The unique key with which it was enqueued."""
        return None if self.new.conditions is None else self.new.conditions.unique

    def due_at(self, run_us: int) -> None:
        """Set when the job is due, and thereby its turn."""
        self.run_us = run_us
        self.turn_us = turn_of(run_us, self.new.priority)

    def leave(self, state: JobState) -> None:
        """End the current lease, if any, and move the job to `state`."""
        if self.admitted_us is not None and self.lease is not None:
            self.last_start = self.lease.started_us
        self.state = state
        self.lease = self.admission = self.admitted_us = None

    def end(self, state: JobState, now_us: int, reason: str | None = None) -> None:
        """Move the job to a final state."""
        self.leave(state)
        self.waits = False
        self.finished_us = now_us
        self.reason = reason

    def keep_attempt(self, view: AttemptView) -> None:
        """Keep the record of an attempt that did not complete: the first few and the last few are kept."""
        self.attempts.append(view)
        if len(self.attempts) > KEEP_FIRST + KEEP_LAST:
            del self.attempts[KEEP_FIRST]

    def leased(self, fence: int) -> LeasedJob:
        """Return the job as a claim returns it."""
        new, counters = self.new, self.counters
        return LeasedJob(
            id=new.id,
            seq=self.seq,
            queue=new.queue,
            task=new.task,
            payload=new.payload,
            headers=new.headers,
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            _enqueued_us=self.enqueued_us,
            turn=self.turn_us,
            attempt=counters.attempt,
            excused=counters.excused,
            interrupted=counters.interrupted,
            lost=counters.lost,
            fence=fence,
            order_key=new.order_key,
        )


@dataclass(slots=True)
class WorkerRecord:
    """A worker that sent a heartbeat."""

    heartbeat: WorkerHeartbeat
    started_us: int
    seen_us: int


class ReferenceState:
    """The complete state of a store: jobs, queues, workers, counts, the last fence and the last seq."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.records: dict[str, ReferenceJob] = {}
        self.queues: set[str] = set()
        self.paused: set[str] = set()
        self.paused_tasks: set[str] = set()
        self.limits: dict[LimitKey, Limit] = {}
        self.rate_at: dict[LimitKey, int] = {}
        self.declared: dict[LimitKey, Limit] = {}
        self.known_tasks: set[str] = set()
        self.workers: dict[str, WorkerRecord] = {}
        self.counts: dict[tuple[int, str, str], Counter[str]] = {}
        self.unique_keys: dict[tuple[str, str], ReferenceKey] = {}
        self.key_rates: dict[tuple[str, str, str], int] = {}
        self.key_wakes: dict[tuple[str, str, str], int | None] = {}
        self.last_admission = 0
        self.last_fence = 0
        self.last_seq: int = 0

    @property
    def now(self) -> int:
        """The store's clock, in microseconds."""
        return self.clock()

    def due_us(self, job: NewJob) -> int:
        """Return when a job that is enqueued now is due."""
        if job.run_at is not None:
            return to_micros(job.run_at)
        return self.now if job.delay is None else self.now + span_micros(job.delay)

    def of_lease(self, lease: Lease) -> ReferenceJob | None:
        """Return the job leased under exactly this fence, or None if the fence is stale."""
        record = self.records.get(lease.job_id)
        if record is None or record.lease is None or record.lease.fence != lease.fence:
            return None
        return record

    def of_order_key(self, scope: tuple[str, str]) -> list[ReferenceJob]:
        """Return the unfinished jobs of an order key: its head, then the blocked jobs, in order."""
        unfinished = [
            record
            for record in self.records.values()
            if record.order_scope == scope and not record.is_final and not record.waits
        ]
        return sorted(unfinished, key=lambda record: (record.state is JobState.BLOCKED, record.place))

    def held(self) -> list[tuple[ReferenceJob, ReferenceLease]]:
        """Return the leased jobs, the next to expire first."""
        held = [(record, record.lease) for record in self.records.values() if record.lease is not None]
        return sorted(held, key=lambda pair: (pair[1].expires_us, pair[0].seq))

    def count(self, record: ReferenceJob, what: str, by: int = 1) -> None:
        """Add to the count of the current minute."""
        minute = self.now - self.now % 60_000_000
        self.counts.setdefault((minute, record.new.queue, record.new.task), Counter())[what] += by
