"""One job: its state, why it is not running, its attempts, its relatives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.model.job import FINAL_STATES, JobState
from holdfast.reports.explanation_text import Words, words
from holdfast.reports.times import now
from holdfast.server.dashboard.graph_layout import DrawnGraph, drawn
from holdfast.store.values import AttemptView, GraphJob, JobDetails, JobView

if TYPE_CHECKING:
    from holdfast.app.app import App

_MOST_RELATIVES: Final = 50
_LISTED_RELATIVES: Final = 15
LANE_WIDTH, LANE_HEIGHT = 720, 22
_NARROWEST: Final = 3.0
_RECENT: Final = 20
_TRACEBACKS: Final = 2


class AttemptLane(msgspec.Struct, frozen=True):
    """One attempt as a bar in the timeline, with the fence of its lease."""

    attempt: int
    fence: int
    outcome: str
    worker_id: str
    started_at: datetime
    took: timedelta
    x: float
    width: float
    error: str | None
    traceback: str | None = None


class JobScreen(msgspec.Struct, frozen=True):
    """Everything that the page of a job shows, but for its arguments."""

    details: JobDetails
    words: Words
    lanes: tuple[AttemptLane, ...]
    waited: timedelta | None
    graph: DrawnGraph | None
    parents: tuple[GraphJob, ...]
    children: tuple[GraphJob, ...]
    start_at: datetime
    end_at: datetime
    """Start and end of the timeline of the attempts."""
    seen: str
    """What a form must repeat: an action from a page that shows an older state is refused."""

    @property
    def job(self) -> JobView:
        """The job."""
        return self.details.job

    @property
    def remedy(self) -> str:
        """The remedy, unless the job has ended: then the page has a button for it."""
        text = "" if self.job.state in FINAL_STATES else self.words.remedy
        return text[:1].upper() + text[1:]

    @property
    def may_retry(self) -> bool:
        """Whether `retry` applies."""
        return self.job.state in {JobState.FAILED, JobState.CANCELLED}

    @property
    def may_run(self) -> bool:
        """Whether `run` applies."""
        return self.job.state is JobState.SCHEDULED

    @property
    def may_cancel(self) -> bool:
        """Whether `cancel` applies."""
        return self.job.state not in FINAL_STATES

    @property
    def tracebacks(self) -> list[AttemptLane]:
        """The latest attempts with a traceback; that of each attempt may have kilobytes."""
        return [lane for lane in reversed(self.lanes) if lane.traceback][:_TRACEBACKS]

    @property
    def timeline_height(self) -> int:
        """The height of the timeline, in its own units."""
        return LANE_HEIGHT * len(self.lanes)


def seen_state(details: JobDetails) -> str:
    """Return what changes whenever the job does: its state, its attempt and the fence of its lease."""
    return seen_text(details.job.state, details.job.attempt, 0 if details.lease is None else details.lease.fence)


def seen_text(state: JobState, attempt: int, fence: int) -> str:
    """Return the state of a job as forms repeat it."""
    return f"{state}.{attempt}.{fence}"


async def read_job(app: App, job_id: str) -> JobScreen:
    """Read the page of a job; raises `JobNotFound`."""
    details = await app.jobs.show(job_id)
    explanation = await app.jobs.explain(job_id)
    graph = await app.jobs.graph(job_id, limit=_MOST_RELATIVES)
    own = next((job for job in graph.jobs if job.id == details.job.id), None)
    above = [] if own is None else own.parents
    attempts = _attempts(details, now())
    start, end = _ends(details, attempts)
    return JobScreen(
        details,
        words(explanation),
        tuple(_lane(attempt, start, end) for attempt in attempts),
        None if details.job.started_at is None else _first_start(details) - details.job.enqueued_at,
        drawn(graph) if len(graph.jobs) > 1 else None,
        tuple(job for job in graph.jobs if job.id in above)[:_LISTED_RELATIVES],
        tuple(job for job in graph.jobs if details.job.id in job.parents)[:_LISTED_RELATIVES],
        start,
        end,
        seen_state(details),
    )


def _first_start(details: JobDetails) -> datetime:
    started = [attempt.started_at for attempt in details.all_attempts]
    return min([*started, details.job.started_at or details.job.enqueued_at])


def _attempts(details: JobDetails, at: datetime) -> list[AttemptView]:
    """Return the latest attempts; one that runs ends now."""
    attempts = [*details.all_attempts]
    lease = details.lease
    if lease is not None:
        ends: dict[str, Any] = dict.fromkeys(("error_class", "message", "traceback", "signature"))
        running = AttemptView(lease.attempt, lease.fence, lease.worker_id, lease.started_at, at, "running", **ends)
        attempts.append(running)
    return attempts[-_RECENT:]


def _ends(details: JobDetails, attempts: Sequence[AttemptView]) -> tuple[datetime, datetime]:
    """Return start and end of the timeline: from the enqueue, or the first attempt shown if there were earlier ones."""
    start = details.job.enqueued_at
    if not attempts:
        return start, start
    first = attempts[0].started_at
    start = first if len(details.all_attempts) > _RECENT else min(start, first)
    return start, max(attempt.ended_at for attempt in attempts)


def _lane(attempt: AttemptView, start: datetime, end: datetime) -> AttemptLane:
    whole = max((end - start).total_seconds(), 0.001)
    took = max(attempt.ended_at - attempt.started_at, timedelta(0))
    width = max(took.total_seconds() / whole * LANE_WIDTH, _NARROWEST)
    x = min(max((attempt.started_at - start).total_seconds() / whole * LANE_WIDTH, 0.0), LANE_WIDTH - width)
    error = ": ".join(part for part in (attempt.error_class, attempt.message) if part) or None
    return AttemptLane(
        attempt.attempt,
        attempt.fence,
        attempt.outcome,
        attempt.worker_id,
        attempt.started_at,
        took,
        round(max(x, 0.0), 2),
        round(width, 2),
        error,
        attempt.traceback,
    )
