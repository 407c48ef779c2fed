"""Change many jobs: they are selected by state, queue, task and age, then changed in batches, each in one transaction.

The selection is made first. Jobs that come later are left alone, so a change ends while producers continue. A job that
changes in between is judged again in its batch, under its lock. If a change is broken off, a repeat does the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError, JobNotFound, UniqueConflict
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.model.outcome import REASON_LIMIT
from holdfast.runtime.text import clean
from holdfast.store.jobs import JobStore
from holdfast.store.values import Cancellation, JobView

if TYPE_CHECKING:
    from holdfast.app.app import App

BATCH = 200  # jobs in one transaction: it locks their rows
_PAGE = 500
_ID_BYTES = 16
_SHAPE_LIMIT = 200
_NUMBER = re.compile(r"[0-9a-f-]*\d[0-9a-f-]*")  # also a UUID
NO_AGE = timedelta(0)
WAITING = (JobState.SCHEDULED, JobState.BLOCKED, JobState.READY)
FINISHED = tuple(sorted(FINAL_STATES))


def check_reason(reason: object) -> str:
    """Return the reason of a cancellation as it is stored; raise `ConfigError` if it is not a text."""
    if not isinstance(reason, str):
        given = f"the reason to cancel a job is of type {type(reason).__name__}"
        raise ConfigError(f"{given}: pass a text that says why, or leave it out")
    return clean(reason or "cancelled by an operator", REASON_LIMIT)


def error_shape(reason: str | None) -> str:
    """Return an error without its numbers and ids, by which errors are grouped."""
    return _NUMBER.sub("0", reason or "")[:_SHAPE_LIMIT]


class Retrial(StrEnum):
    """The answer to a retry of one job of many."""

    RETRIED = "retried"
    TOO_LATE = "too_late"  # it is no longer in the state in which it was selected
    CONFLICT = "conflict"  # another job holds its unique key


class JobSelection(msgspec.Struct, frozen=True):
    """Jobs in one state, optionally of one queue and one task, and for finished ones of some age.

    `error`: only those whose last error has this shape (`error_shape`).
    """

    state: JobState
    queue: str | None = None
    task: str | None = None
    older_than: timedelta = NO_AGE
    error: str | None = None

    def __str__(self) -> str:
        """Return it as it is searched for: `state:failed queue:mails`."""
        age = f"{self.older_than.total_seconds():g}s" if self.older_than else None
        parts = {"queue": self.queue, "task": self.task, "error": self.error, "older_than": age}
        return " ".join([f"state:{self.state}", *(f"{name}:{value}" for name, value in parts.items() if value)])

    def has_error(self, reason: str | None) -> bool:
        """Whether the error of a job is one of those that are selected."""
        return self.error is None or error_shape(reason) == self.error

    def fits(self, job: JobView) -> bool:
        """Whether it contains a job in its state, whatever the age of the job."""
        is_asked = self.queue in {None, job.queue} and self.task in {None, job.task}
        return is_asked and self.has_error(job.reason)

    async def ids(self, app: App, limit: int | None = None) -> SelectedIds:
        """Return the ids, at most `limit`."""
        found = SelectedIds()
        cursor: str | None = None
        facts = await (await app.opened(install=False)).insight.facts() if self.older_than else {}
        latest = int(facts.get("now_us", 0)) - span_micros(self.older_than)  # judged again in the batch
        while True:
            page = await app.jobs.list(self.state, queue=self.queue, task=self.task, cursor=cursor, limit=_PAGE)
            for job in page.jobs:
                if limit is not None and len(found) >= limit:
                    return found
                is_old = job.finished_at is not None and to_micros(job.finished_at) <= latest
                if (is_old or not self.older_than) and self.has_error(job.reason):
                    found.add(job.id)
            if page.cursor is None:
                return found
            cursor = page.cursor


class SelectedIds:
    """Job ids in sixteen bytes each: there may be millions."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, job_id: str) -> None:
        """Add an id."""
        self._bytes += UUID(job_id).bytes

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._bytes) // _ID_BYTES

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        for start in range(0, len(self._bytes), _ID_BYTES):
            yield str(UUID(bytes=bytes(self._bytes[start : start + _ID_BYTES])))

    def batches(self) -> Iterator[list[str]]:
        """Iterate over lists of at most `BATCH` ids."""
        ids: list[str] = []
        for job_id in self:
            ids.append(job_id)
            if len(ids) == BATCH:
                yield ids
                ids = []
        if ids:
            yield ids


async def retry_batch(app: App, ids: Sequence[str], ended_by: datetime | None = None) -> Counter[Retrial]:
    """Retry these jobs, each in its own transaction; return how many were answered in each way."""
    jobs = (await app.opened(install=False)).jobs
    return Counter([await _retry(jobs, job_id, ended_by) for job_id in ids])


async def _retry(jobs: JobStore, job_id: str, ended_by: datetime | None) -> Retrial:
    try:
        is_retried = await jobs.retry(job_id, ended_by=ended_by)
    except JobNotFound:  # pruned or deleted since it was selected
        return Retrial.TOO_LATE
    except UniqueConflict:
        return Retrial.CONFLICT
    return Retrial.RETRIED if is_retried else Retrial.TOO_LATE


async def cancel_batch(app: App, ids: Sequence[str], reason: str) -> Counter[Cancellation]:
    """Cancel these jobs in one transaction; return how many were answered in each way."""
    answers = await (await app.opened(install=False)).jobs.cancel_all(ids, reason)
    return Counter(answers.values())


async def delete_batch(app: App, ids: Sequence[str], selection: JobSelection) -> int:
    """Delete those of these jobs that the selection still contains, in one transaction; return how many."""
    answers = await (await app.opened(install=False)).jobs.delete(ids, {selection.state}, selection.older_than)
    return sum(state is None for state in answers.values())
