"""The kinds of records in a history.

Every record is one line of JSON with its `kind` (the class name in snake_case) and `at_us`, the instant at which it was
written by CLOCK_MONOTONIC in microseconds. `store_us` is the store's own clock, where the writer knows it.

Calls leave a `…_called` record before they are made and one of `…_answered`, `…_refused` (known not to have been done)
and `…_unknown` (it may have been done) after it. A call without any of these is unknown too: its process died.
`sent_us` of an answer is the `at_us` at which the request had been sent.
"""

from __future__ import annotations

from holdfast.torture.event import Believed, HistoryRecord, JobEvent, Takes
from holdfast.torture.operator_events import (
    CancelAnswered,
    CancelCalled,
    PauseAnswered,
    ResetAnswered,
    ResetCalled,
    ResumeAnswered,
    ResumeCalled,
    RetryAnswered,
    RetryCalled,
)
from holdfast.torture.snapshot_events import AttemptRow, Clock, Dumped, EffectRow, JobRow, Snapshot

# --- processes and faults ---------------------------------------------------------------------------------------------


class Started(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process begins its file; the first record of each."""

    run: str
    role: str
    name: str
    pid: int


class HistoryEnded(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process ends its file in good order; nothing follows."""


class RunBegan(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """What the checker must know of the run; written once, by the conductor.

    `recovery_us` bounds how long after the death of its holder a job is taken from it, faults of the store aside.
    `isolates`: jobs that were lost run alone, in a process that has not claimed them. `overtaking_us` bounds for how
    long a job that is ready may be overtaken by those whose turn is later; 0 leaves the order unchecked.
    """

    seed: int
    store: str
    lease_us: int
    recovery_us: int
    isolates: bool = True
    overtaking_us: int = 30_000_000


class Exited(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A process is gone, as its parent saw it. `process` is its file's name without the suffix."""

    process: str
    code: int | None = None
    signal: int | None = None


class FaultBegan(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The nemesis does something. `fault` names its kind, `target` a process (by file name), a link or the store.

    `stalls` says that it may keep every worker from the store or from running, so that no recovery can be asked for
    until it is over; `total`, that it surely keeps every worker from extending its leases. `asks` says that the target
    was asked to end (SIGTERM), so that it gives up its leases by itself.
    """

    number: int
    fault: str
    target: str
    detail: str = ""
    stalls: bool = False
    total: bool = False
    asks: bool = False


class FaultEnded(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """What the nemesis did is over; a kill ends when the process is gone."""

    number: int
    fault: str
    target: str


# --- enqueue ----------------------------------------------------------------------------------------------------------


class EnqueueCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Jobs are about to be enqueued, all or none, under ids that the caller has made.

    Where the library makes the ids (`enqueue_many`), `jobs` is empty and `size` counts them; the jobs then carry the
    header `call`, which the final dump gives back. A repeat has the same jobs and another `call`.
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


class EnqueueAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The jobs are in; `new` is False for those that were there before. All were new if it is left empty."""

    call: str
    jobs: tuple[str, ...]
    new: tuple[bool, ...] = ()


class EnqueueRefused(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The jobs are not in: an error that says so, or the caller's own transaction was rolled back."""

    call: str
    jobs: tuple[str, ...]
    error: str


class EnqueueUnknown(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The reply was lost."""

    call: str
    jobs: tuple[str, ...]
    error: str


# --- what the port answered, where somebody stands beside it ----------------------------------------------------------


class Claimed(JobEvent, frozen=True, kw_only=True, gc=False):
    """A claim was answered with this job. `pulled`: by `app.claim`, so nobody extends its lease but the caller."""

    attempt: int
    worker: str
    queue: str
    task: str
    sent_us: int
    lease_us: int
    turn_us: int | None = None
    seq: int | None = None
    pulled: bool = False


class Finished(JobEvent, frozen=True, kw_only=True, gc=False):
    """The end of an attempt was sent to the store; `verdict` is done, lost, unavailable (not done) or unknown."""

    outcome: str
    verdict: str
    sent_us: int
    delay_us: int = 0


class Released(JobEvent, frozen=True, kw_only=True, gc=False):
    """A job was given back; verdicts as in `Finished`."""

    started: bool
    verdict: str
    sent_us: int


class Extended(JobEvent, frozen=True, kw_only=True, gc=False):
    """A lease was to be extended; verdicts as in `Finished`, and skipped: a transaction held it, and it stayed."""

    verdict: str
    sent_us: int
    lease_us: int


class RescueSeen(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A job was taken from a dead or silent worker: where it went."""

    job: str
    attempt: int
    worker: str
    state: str
    sent_us: int


# --- attempts ---------------------------------------------------------------------------------------------------------


class AttemptBegan(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler begins. `used` counts the attempts held against `max_attempts`, this one included.

    `isolated`: it is to run alone, because it was lost before. `turn_us` and `seq` are its place in its queue.
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
    """A handler ended; `delay_us` is what it asked for until the next attempt."""

    attempt: int
    believed: Believed
    delay_us: int = 0
    error: str = ""


class EffectBegan(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler is about to open the transaction of its effect."""


class EffectCommitted(JobEvent, frozen=True, kw_only=True, gc=False):
    """The block of `ctx.transaction()` was left: effect and completion are there. `sent_us`: when it was entered."""

    sent_us: int
    completes: bool = True


class EffectRolledBack(JobEvent, frozen=True, kw_only=True, gc=False):
    """Neither effect nor completion is there."""

    error: str = ""


class EffectUnknown(JobEvent, frozen=True, kw_only=True, gc=False):
    """The answer to the commit was lost."""

    error: str = ""


class OutsideSent(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler is about to send an outside effect, with its idempotency key."""

    key: str


class OutsideAccepted(JobEvent, frozen=True, kw_only=True, gc=False):
    """The server of outside effects has taken one in; written by that server.

    `payment` is what its caller was asked to pay: there is one job for it, whatever became of that job's id.
    """

    key: str
    payment: str = ""


class OutsideRefusal(JobEvent, frozen=True, kw_only=True, gc=False):
    """The server of outside effects has refused one: its key is known, or its fence is smaller than one before."""

    key: str
    reason: str


class OutsideAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """What the handler was told; `accepted` None: the answer was lost."""

    key: str
    accepted: bool | None


class ProgressAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler reported progress; verdicts as in `Finished`."""

    verdict: str
    sent_us: int


class ExtendAnswered(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler extended its lease; verdicts as in `Finished`."""

    verdict: str
    sent_us: int
    lease_us: int


class LeaseLostSeen(JobEvent, frozen=True, kw_only=True, gc=False):
    """A handler was told that its lease is lost."""


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
    | CancelCalled
    | CancelAnswered
    | RetryCalled
    | RetryAnswered
    | ResetCalled
    | ResetAnswered
    | PauseAnswered
    | ResumeCalled
    | ResumeAnswered
    | Clock
    | Snapshot
    | JobRow
    | EffectRow
    | Dumped
)

__all__ = [
    "AnyEvent",
    "AttemptBegan",
    "AttemptEnded",
    "AttemptRow",
    "Believed",
    "CancelAnswered",
    "CancelCalled",
    "Claimed",
    "Clock",
    "Dumped",
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
    "JobRow",
    "LeaseLostSeen",
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
