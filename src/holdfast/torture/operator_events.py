"""What people ask of jobs and queues while a run goes on."""

from __future__ import annotations

from holdfast.torture.event import HistoryRecord


class CancelCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Somebody asks to cancel a job."""

    job: str


class CancelAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The answer: cancelled, asked, too_late, unavailable or unknown."""

    job: str
    answer: str
    sent_us: int


class RetryCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Somebody asks to run an ended job again."""

    job: str


class RetryAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The answer: True if the job was failed or cancelled and is ready again; None is unknown."""

    job: str
    answer: bool | None
    sent_us: int


class ResetCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Somebody takes a running job's lease away."""

    job: str


class ResetAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The answer: True if the job ran, and its holder is stale from now on; None is unknown.

    `sent_us` is the `at_us` of the call.
    """

    job: str
    answer: bool | None
    sent_us: int


class PauseAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A queue is paused: it was by this call, or had been before it."""

    queue: str
    sent_us: int


class ResumeCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Somebody asks to claim from a queue again."""

    queue: str


class ResumeAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """That was done, or is known not to have been done; without an answer it may be done at any time.

    `sent_us` is the `at_us` of the call.
    """

    queue: str
    sent_us: int
