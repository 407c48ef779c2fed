"""The kinds of records in a history.

Every record is one line of JSON with its `kind` (the class name in snake_case) and `at_us`, the CLOCK_MONOTONIC time in
microseconds at which it was written. `store_us` is the store's own clock, where the writer knows it.

An operation writes a `…_called` record (its invocation) before the call and one of `…_answered`, `…_refused` (certainly
not done) and `…_unknown` (outcome unknown) after it. An invocation without any of these has an unknown outcome too: its
process died. `sent_us` of a reply is the `at_us` at which the request was sent.
"""

from __future__ import annotations

from holdfast.torture.event import HistoryRecord, JobEvent, ObservedOutcome, Takes
from holdfast.torture.operator_events import (
    CancelAnswered,
    CancelCalled,
    OperatorEvent,
    PauseAnswered,
    ResetAnswered,
    ResetCalled,
    ResumeAnswered,
    ResumeCalled,
    RetryAnswered,
    RetryCalled,
)
from holdfast.torture.snapshot_events import AttemptRow, Clock, Dumped, DumpedJob, EffectRow, Snapshot

# --- processes and faults ---------------------------------------------------------------------------------------------


class Started(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process starts its file; the first record of each."""

    run: str
    role: str
    name: str
    pid: int


class HistoryEnded(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process ends its file cleanly; nothing follows."""


class RunBegan(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The facts about the run that the checker needs; written once, by the conductor.

    `recovery_us` bounds the time from the death of a holder until its jobs are freed, faults of the store aside.
    `isolates`: lost jobs run isolated, in a process that did not claim them. `overtaking_us` bounds how long a ready
    job may be overtaken by jobs with a later turn; 0 leaves the order unchecked. `has_gaps`: the positions of events
    have gaps, and events have no versions, as in Kafka.
    """

    seed: int
    store: str
    lease_us: int
    recovery_us: int
    isolates: bool = True
    overtaking_us: int = 30_000_000
    has_gaps: bool = False


class Exited(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process exited, as seen by its parent. `process` is the name of its file without the suffix."""

    process: str
    code: int | None = None
    signal: int | None = None


class FaultBegan(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The nemesis injects a fault of kind `fault` into `target`: a process (by file name), a connection or the store.

    `stalls`: it may keep every worker from the store or from running, so that no recovery can be required until it has
    ended; `total`: it certainly keeps every worker from extending its leases. `asks`: the target was asked to shut down
    (SIGTERM), so that it ends its leases by itself.
    """

    number: int
    fault: str
    target: str
    detail: str = ""
    stalls: bool = False
    total: bool = False
    asks: bool = False


class FaultEnded(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A fault has ended; a kill ends when the process is gone."""

    number: int
    fault: str
    target: str


# --- enqueue ----------------------------------------------------------------------------------------------------------


class EnqueueCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Jobs are about to be enqueued, all or none, under ids of the caller.

    If the library generates the ids (`enqueue_many`), `jobs` is empty and `size` counts them; the jobs then carry the
    header `call`, which the final dump contains. A repeat has the same jobs and another `call`. `max_running` is the
    limit of the task, or with a `limit_key` that of each key, 0 for none. Each job waits for those in `after`. With a
    `chain`, all but each first of so many also wait for the one before.
    """

    call: str
    jobs: tuple[str, ...]
    task: str
    queue: str
    takes: Takes
    max_attempts: int
    size: int = 0
    priority: int = 0
    delay_us: int = 0
    run_us: int | None = None
    using: bool = False
    unique_key: str = ""
    max_running: int = 0
    limit_key: str = ""
    after: tuple[str, ...] = ()
    run_anyway: bool = False
    chain: int = 0


class EnqueueAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The jobs are enqueued; `new` is False for those that existed before. If it is empty, all were new.

    A job that holds the unique key of the call is named instead of the one that was not enqueued.
    """

    call: str
    jobs: tuple[str, ...]
    new: tuple[bool, ...] = ()


class EnqueueRefused(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The jobs are not enqueued: an error says so, or the caller's own transaction was rolled back."""

    call: str
    jobs: tuple[str, ...]
    error: str


class EnqueueUnknown(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The reply was lost."""

    call: str
    jobs: tuple[str, ...]
    error: str


# --- replies of the port, where the backend is recorded ------------------------------------------------------------


class Claimed(JobEvent, frozen=True, kw_only=True, gc=False):
    """A claim returned this job. `direct`: by `app.claim`, so that only the caller extends its lease."""

    attempt: int
    worker: str
    queue: str
    task: str
    sent_us: int
    lease_us: int
    turn_us: int | None = None
    seq: int | None = None
    direct: bool = False


class Finished(JobEvent, frozen=True, kw_only=True, gc=False):
    """The end of an attempt was sent to the store; `verdict` is done, lost, unavailable (not done) or unknown."""

    outcome: str
    verdict: str
    sent_us: int
    delay_us: int = 0


class Released(JobEvent, frozen=True, kw_only=True, gc=False):
    """A job was released; verdicts as in `Finished`."""

    started: bool
    verdict: str
    sent_us: int


class Extended(JobEvent, frozen=True, kw_only=True, gc=False):
    """An extension of a lease; verdicts as in `Finished`, or skipped: a transaction has the lease locked."""

    verdict: str
    sent_us: int
    lease_us: int


class RescueSeen(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A job was taken from a dead or silent worker, with its new state."""

    job: str
    attempt: int
    worker: str
    state: str
    sent_us: int


# --- attempts ---------------------------------------------------------------------------------------------------------


class AttemptBegan(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler starts. `used` counts the attempts charged against `max_attempts`, this one included.

    `isolated`: it must run isolated, because it was lost before. `turn_us` and `seq` are its position in its queue.
    """

    attempt: int
    used: int
    worker: str
    queue: str
    task: str
    isolated: bool = False
    turn_us: int | None = None
    seq: int | None = None


class AttemptEnded(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler ended; `delay_us` is the requested delay until the next attempt."""

    attempt: int
    observed: ObservedOutcome
    delay_us: int = 0
    error: str = ""


class EffectBegan(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler is about to open the transaction of its effect."""


class EffectCommitted(JobEvent, frozen=True, kw_only=True, gc=False):
    """`ctx.transaction()` was left: effect and completion are committed. `sent_us`: when it was entered."""

    sent_us: int
    completes: bool = True


class EffectRolledBack(JobEvent, frozen=True, kw_only=True, gc=False):
    """Neither effect nor completion is committed."""

    error: str = ""


class EffectUnknown(JobEvent, frozen=True, kw_only=True, gc=False):
    """The reply to the commit was lost."""

    error: str = ""


class OutsideSent(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler is about to send an outside effect, with its idempotency key."""

    key: str


class OutsideAccepted(JobEvent, frozen=True, kw_only=True, gc=False):
    """The outside server accepted an effect; written by that server.

    `payment` identifies the effect; exactly one job exists for it, whatever its job id.
    """

    key: str
    payment: str = ""


class OutsideRefusal(JobEvent, frozen=True, kw_only=True, gc=False):
    """The outside server refused an effect: its key is known, or its fence is smaller than an earlier one."""

    key: str
    reason: str


class OutsideAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """The reply to a handler's outside call; `accepted` None: the reply was lost."""

    key: str
    accepted: bool | None


class ProgressAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler recorded progress; verdicts as in `Finished`."""

    verdict: str
    sent_us: int


class ExtendAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler extended its lease; verdicts as in `Finished`."""

    verdict: str
    sent_us: int
    lease_us: int


class LeaseLostSeen(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler was notified that its lease is lost."""


AnyEvent = (
    Started
    | HistoryEnded
    | RunBegan
    | Exited
    | FaultBegan
    | FaultEnded
    | EnqueueCalled
    | EnqueueAnswered
    | EnqueueRefused
    | EnqueueUnknown
    | Claimed
    | Finished
    | Released
    | Extended
    | RescueSeen
    | AttemptBegan
    | AttemptEnded
    | EffectBegan
    | EffectCommitted
    | EffectRolledBack
    | EffectUnknown
    | OutsideSent
    | OutsideAccepted
    | OutsideRefusal
    | OutsideAnswered
    | ProgressAnswered
    | ExtendAnswered
    | LeaseLostSeen
    | OperatorEvent
    | Clock
    | Snapshot
    | DumpedJob
    | EffectRow
    | Dumped
)

__all__ = [
    "AnyEvent",
    "AttemptBegan",
    "AttemptEnded",
    "AttemptRow",
    "CancelAnswered",
    "CancelCalled",
    "Claimed",
    "Clock",
    "Dumped",
    "DumpedJob",
    "EffectBegan",
    "EffectCommitted",
    "EffectRolledBack",
    "EffectRow",
    "EffectUnknown",
    "EnqueueAnswered",
    "EnqueueCalled",
    "EnqueueRefused",
    "EnqueueUnknown",
    "Exited",
    "ExtendAnswered",
    "Extended",
    "FaultBegan",
    "FaultEnded",
    "Finished",
    "HistoryEnded",
    "HistoryRecord",
    "JobEvent",
    "LeaseLostSeen",
    "ObservedOutcome",
    "OutsideAccepted",
    "OutsideAnswered",
    "OutsideRefusal",
    "OutsideSent",
    "PauseAnswered",
    "ProgressAnswered",
    "Released",
    "RescueSeen",
    "ResetAnswered",
    "ResetCalled",
    "ResumeAnswered",
    "ResumeCalled",
    "RetryAnswered",
    "RetryCalled",
    "RunBegan",
    "Snapshot",
    "Started",
    "Takes",
]
