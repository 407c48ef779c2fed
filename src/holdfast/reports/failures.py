"""Failed jobs, grouped by their errors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.app.bulk import error_shape
from holdfast.store.values import JobView


class FailureGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one task with the same error but for numbers in it; `error` is the latest of them."""

    task: str
    error: str
    jobs: int
    last_at: datetime

    @property
    def key(self) -> tuple[str, str]:
        """What its jobs have in common."""
        return self.task, error_shape(self.error)


def error_key(job: JobView) -> tuple[str, str]:
    """Return the task of a failed job, and its error without numbers and ids."""
    return job.task, error_shape(job.reason)


def failure_groups(failed: Sequence[JobView]) -> list[FailureGroup]:
    """Group failed jobs by task and error, the largest group first."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    for job in failed:
        error, ended = job.reason or "", job.finished_at or job.enqueued_at
        key = error_key(job)
        known = groups.get(key, FailureGroup(job.task, error, 0, ended))
        latest = error if ended >= known.last_at else known.error
        groups[key] = FailureGroup(job.task, latest, known.jobs + 1, max(known.last_at, ended))
    return sorted(groups.values(), key=lambda group: group.jobs, reverse=True)
