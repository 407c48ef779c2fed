"""Failed jobs in groups, each with the same error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.job import JobState
from holdfast.reports.failures import error_key, failure_groups
from holdfast.reports.times import now
from holdfast.server.dashboard.charts import Sparkline, sparkline
from holdfast.store.values import JobView

if TYPE_CHECKING:
    from holdfast.app.app import App

LOOKED_AT: Final = 500
_SAMPLES: Final = 3
_BUCKETS: Final = 24


class ErrorGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one task with the same error, apart from the numbers in it."""

    task: str
    error: str
    shape: str
    jobs: int
    first_at: datetime
    last_at: datetime
    queues: tuple[str, ...]
    samples: tuple[JobView, ...]
    spark: Sparkline


class ErrorsScreen(msgspec.Struct, frozen=True):
    """The groups, the largest first; `is_cut`: there are more failed jobs than were looked at."""

    groups: tuple[ErrorGroup, ...]
    looked_at: int
    is_cut: bool


async def read_errors(app: App) -> ErrorsScreen:
    """Group the latest failed jobs: one statement."""
    page = await app.jobs.list(JobState.FAILED, limit=LOOKED_AT)
    return ErrorsScreen(grouped(page.jobs, now()), len(page.jobs), page.cursor is not None)


def grouped(failed: Sequence[JobView], at: datetime) -> tuple[ErrorGroup, ...]:
    """Group failed jobs, with the distribution of their ends over time."""
    members: dict[tuple[str, str], list[JobView]] = {}
    for job in failed:
        members.setdefault(error_key(job), []).append(job)
    groups: list[ErrorGroup] = []
    for group in failure_groups(failed):
        jobs = members[group.key]
        ends = [job.finished_at or job.enqueued_at for job in jobs]
        groups.append(
            ErrorGroup(
                group.task,
                group.error,
                group.key[1],
                group.jobs,
                min(ends),
                group.last_at,
                tuple(sorted({job.queue for job in jobs})),
                tuple(jobs[:_SAMPLES]),
                sparkline(_hourly(ends, at), "failed", "Failures in each of the last 24 hours"),
            )
        )
    return tuple(groups)


def _hourly(ends: Sequence[datetime], at: datetime) -> list[int]:
    counts = [0] * _BUCKETS
    for end in ends:
        hours = (at - end) // timedelta(hours=1)
        if 0 <= hours < _BUCKETS:
            counts[_BUCKETS - 1 - hours] += 1
    return counts
