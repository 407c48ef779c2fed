"""Operator actions on jobs and queues during a run."""

from __future__ import annotations

from holdfast.torture.event import HistoryRecord


class CancelCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An operator sends the cancellation of a job."""

    job: str


class CancelAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The reply: cancelled, asked, too_late, unavailable or unknown."""

    job: str
    answer: str
    sent_us: int


class RetryCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An operator sends the retry of an ended job."""

    job: str


class RetryAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The reply: True if the job was failed or cancelled and is ready again; None is unknown."""

    job: str
    answer: bool | None
    sent_us: int


class ResetCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An operator sends the reset of a running job's lease."""

    job: str


class ResetAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The reply: True if the job was running, and its holder is stale from now on; None is unknown.

    `sent_us` is the `at_us` of the call.
    """

    job: str
    answer: bool | None
    sent_us: int


class PauseAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A queue is paused, by this call or an earlier one."""

    queue: str
    sent_us: int


class ResumeCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An operator sends the resumption of a queue."""

    queue: str


class ResumeAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The queue was resumed, or certainly was not; without this record it may be resumed at any time.

    `sent_us` is the `at_us` of the call.
    """

    queue: str
    sent_us: int


class LimitAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A queue has a limit, by this call or an earlier one, for the rest of the run.

    At most `running` jobs of it are leased at once; claims are `step_us` apart, except that `burst` may come at once. A
    `step_us` of 0 is no rate.
    """

    queue: str
    sent_us: int
    running: int
    step_us: int
    burst: int


class ScheduleAdded(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A schedule is in the store: every multiple of `every_us`, by the store's clock, becomes one job."""

    schedule: str
    sent_us: int
    every_us: int


class ScheduleRemoving(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An operator sends the removal of a schedule, until it succeeds."""

    schedule: str


OperatorEvent = (
    CancelCalled
    | CancelAnswered
    | RetryCalled
    | RetryAnswered
    | ResetCalled
    | ResetAnswered
    | PauseAnswered
    | ResumeCalled
    | ResumeAnswered
    | LimitAnswered
    | ScheduleAdded
    | ScheduleRemoving
)
