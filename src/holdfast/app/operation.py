"""A bulk operation as data: what it does to which jobs, and how far it is.

```text
   start ──▶ running ──▶ chunk: held ──▶ jobs are listed and changed ──▶ advanced ──▶ … ──▶ done, or cancelled
                ▲           │ the process ends here
                └───────────┘ the next process repeats the chunk
```

Jobs are visited in the order of their list, from the cursor on. Those that were enqueued after the start, or that ended
after it, are passed over: so an operation ends while others enqueue, and a job that is retried and fails again is not
retried twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.app.admin import check_selection
from holdfast.app.bulk import FINISHED, WAITING, JobSelection
from holdfast.app.job_search import FoundJobs
from holdfast.errors import ConfigError
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.records import StoredRecord
from holdfast.store.values import JobView


class OperationAction(StrEnum):
    """What an operation does to every job of its selection."""

    RETRY = "retry"
    CANCEL = "cancel"
    DELETE = "delete"


class OperationState(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"  # what it had changed before stays changed


_ALLOWED = {
    OperationAction.RETRY: (JobState.FAILED, JobState.CANCELLED),
    OperationAction.CANCEL: (*WAITING, JobState.RUNNING),
    OperationAction.DELETE: FINISHED,
}


class OperationPreview(msgspec.Struct, frozen=True):
    """How many jobs an operation would change now; `at_least`: counting stopped there, there may be more."""

    count: int
    at_least: bool = False

    def __str__(self) -> str:
        """Return it as text: `812`, or `10000+`."""
        return f"{self.count}+" if self.at_least else str(self.count)


class OperationView(msgspec.Struct, frozen=True):
    """An operation. `looked_at` jobs were visited so far; `counts` are the answers, as `{"retried": 200}`.

    A chunk that a process has carried out without living to record it is repeated: its jobs, a few hundred at most, are
    not in `counts`. `advanced_at` is when the last chunk was recorded, and the end of an operation that has ended.
    """

    id: str
    action: OperationAction
    selection: JobSelection
    who: str
    state: OperationState
    expected: OperationPreview
    looked_at: int
    counts: Mapping[str, int]
    started_at: datetime
    advanced_at: datetime


class KeptOperation(msgspec.Struct, frozen=True):
    """The content of an operation's record.

    `holder` is the process that carries out a chunk. `ended_by` bounds the jobs: they had ended by then, or were
    enqueued by then if they have not ended.
    """

    action: OperationAction
    selection: JobSelection
    who: str
    reason: str
    expected: OperationPreview
    started_at: datetime
    ended_by: datetime
    state: OperationState = OperationState.RUNNING
    cursor: str | None = None
    looked_at: int = 0
    counts: dict[str, int] = {}
    holder: str | None = None
    cancel_asked: bool = False

    def includes(self, job: JobView) -> bool:
        """Whether a job that its selection contains belongs to the operation."""
        return is_within(job, self.ended_by)

    def held_by(self, holder: str) -> KeptOperation:
        """Return the operation while a process carries out a chunk."""
        return msgspec.structs.replace(self, holder=holder)

    def advanced(self, page: FoundJobs, counts: Mapping[str, int]) -> KeptOperation:
        """Return the operation after a chunk; it is done after the last page."""
        sums = {verdict: self.counts.get(verdict, 0) + counts.get(verdict, 0) for verdict in {*self.counts, *counts}}
        state = OperationState.RUNNING
        if page.cursor is None:
            state = OperationState.DONE
        elif self.cancel_asked:
            state = OperationState.CANCELLED
        return msgspec.structs.replace(
            self,
            state=state,
            cursor=page.cursor,
            looked_at=self.looked_at + page.looked_at,
            counts=dict(sorted(sums.items())),
            holder=None,
        )

    def cancelled(self, *, is_held: bool) -> KeptOperation:
        """Return the operation after a request to cancel it; while it is held, the holder ends it."""
        state = self.state if is_held else OperationState.CANCELLED
        return msgspec.structs.replace(self, cancel_asked=True, state=state)


_decode = msgspec.json.Decoder(KeptOperation).decode


def encode(operation: KeptOperation) -> str:
    """Return the content of a record."""
    return msgspec.json.encode(operation).decode()


def decode(record: StoredRecord) -> KeptOperation:
    """Return the operation of a record."""
    return _decode(record.content)


def view(record: StoredRecord) -> OperationView:
    """Return an operation as callers see it."""
    kept = decode(record)
    return OperationView(
        id=record.name,
        action=kept.action,
        selection=kept.selection,
        who=kept.who,
        state=kept.state,
        expected=kept.expected,
        looked_at=kept.looked_at,
        counts=kept.counts,
        started_at=kept.started_at,
        advanced_at=record.touched_at,
    )


def is_within(job: JobView, ended_by: datetime) -> bool:
    """Whether a job had ended by an instant, or was enqueued by then if it has not ended."""
    if job.state in FINAL_STATES:
        return job.finished_at is not None and job.finished_at <= ended_by
    return job.enqueued_at <= ended_by


def check_action(action: object, selection: JobSelection) -> tuple[OperationAction, JobSelection]:
    """Return a valid action and selection; raises `ConfigError` if they do not fit, or a name is invalid."""
    if action not in list(OperationAction):
        raise ConfigError(f"{action!r} is not an action on jobs: pass one of {', '.join(OperationAction)}")
    known = OperationAction(str(action))
    checked = check_selection(
        selection.state, _ALLOWED[known], selection.queue, selection.task, older_than=selection.older_than
    )
    checked = msgspec.structs.replace(checked, error=selection.error)
    if checked.older_than and known is not OperationAction.DELETE:
        raise ConfigError(f"older_than selects jobs to delete: leave it out to {known} jobs")
    return known, checked
