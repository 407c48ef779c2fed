"""Views of jobs and leases for operators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import shown_unique_key
from holdfast.model.ids import parse_short_id
from holdfast.model.instants import to_datetime
from holdfast.model.job import JobState, Lease
from holdfast.model.turn import run_at_of
from holdfast.store.job_lists import (
    FoundId,
    JobBody,
    LeaseKey,
    ListedAttempt,
    ListedJob,
    ListedLease,
    SeenJob,
)
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import AttemptView, JobDetails, JobFilter, JobPage, JobView, LeaseView
from holdfast.store.verbs.job_admin import not_found

_LATEST = 2**63 - 1
_LOST = "lost"
RESCUED = "rescued"
"""How an attempt is shown whose worker or process died or fell silent."""
_ID_SHAPE = "00000000-0000-0000-0000-000000000000"
_ID_START = re.compile(r"[0-9a-f-]*")
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def job(rows: JobRows, job_id: str) -> Steps[JobDetails]:
    """Return everything that is stored about a job; raises `JobNotFound`."""
    found = yield from rows.page(ListedJob, "job_view", id=job_id)
    if not found:
        raise not_found(job_id)
    view = _job_view(found[0])
    (body,) = yield from rows.page(JobBody, "job_body", seq=view.seq)
    attempts = yield from rows.page(ListedAttempt, "job_attempts", seq=view.seq)
    held = yield from leases(rows, 1, seq=view.seq)
    return JobDetails(
        job=view,
        payload=readable(body.payload),
        headers=headers_of(body.headers) or {},
        result=body.result,
        attempts=[_attempt_view(attempt) for attempt in attempts],
        lease=held[0] if held else None,
        timeout=body.timeout,
        unique_key=None if body.unique_key is None else shown_unique_key(body.unique_key),
        completed_fence=body.fence,
    )


def readable(payload: bytes | str) -> str:
    """Return the text of a payload; invalid UTF-8 becomes a text that is not JSON, so that decoding it fails."""
    if isinstance(payload, str):
        return payload
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error}"


def headers_of(text: bytes | str | None) -> dict[str, str] | None:
    """Return the headers; None if they cannot be read: the job runs without them."""
    if not text:
        return None
    try:
        return _decode_headers(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _job_view(row: ListedJob) -> JobView:
    return JobView(
        id=row.id,
        seq=row.seq,
        queue=row.queue,
        task=row.task,
        state=JobState(row.state),
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        enqueued_at=to_datetime(row.enqueued_at),
        run_at=to_datetime(run_at_of(row.turn, row.priority)),
        started_at=_instant(row.started_at),
        finished_at=_instant(row.finished_at),
        worker_id=row.worker_id,
        reason=row.reason,
        order_key=row.order_key,
        limit_key=row.limit_key,
        used_attempts=None if row.excused is None else row.attempt - row.excused,
    )


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)


def _attempt_view(row: ListedAttempt) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        fence=row.fence,
        worker_id=row.worker_id,
        started_at=to_datetime(row.started_at),
        ended_at=to_datetime(row.ended_at),
        outcome=RESCUED if row.outcome == _LOST else row.outcome,
        error_class=row.error_class,
        message=row.message,
        traceback=row.traceback,
        signature=row.signature,
    )


def jobs(rows: JobRows, selection: JobFilter) -> Steps[JobPage]:
    """List one page of the jobs in one state."""
    found = yield from rows.page(
        ListedJob,
        f"list_{selection.state}",
        queue=selection.queue,
        task=selection.task,
        limit=selection.limit,
        **_cursor(selection),
    )
    views = [_job_view(row) for row in found]
    if len(views) < selection.limit or not views:
        return JobPage(views, None)
    last = views[-1]
    match selection.state:
        case JobState.SCHEDULED:
            return JobPage(views, f"{run_at_of(found[-1].turn, last.priority)}/{last.seq}")
        case JobState.READY:
            return JobPage(views, f"{found[-1].turn}/{last.seq}")
        case JobState.BLOCKED:
            return JobPage(views, str(last.seq))
        case _:
            return JobPage(views, f"{found[-1].finished_at or 0}/{last.seq}")


def _cursor(selection: JobFilter) -> Mapping[str, int]:
    match selection.state:
        case JobState.READY | JobState.SCHEDULED:
            turn, seq = map(_place, selection.cursor.split("/")) if selection.cursor else (-_LATEST, 0)
            return {"after_turn": turn, "after_seq": seq}
        case JobState.BLOCKED:
            return {"after_seq": _place(selection.cursor or "0")}
        case _:  # a store lists ended jobs by seq, or by end and seq
            end, seq = map(_place, selection.cursor.split("/")) if selection.cursor else (_LATEST, _LATEST)
            return {"before": seq, "before_end": end}


def _place(text: str) -> int:
    """Return a part of a cursor; raises `ValueError` if no page can have returned it."""
    place = int(text)
    if abs(place) > _LATEST:
        raise ValueError(text)
    return place


def find(rows: JobRows, prefix: str, limit: int) -> Steps[list[str]]:
    """Return ids that begin with a prefix; a short id is found by its number."""
    if short := parse_short_id(prefix):
        seq, end = short
        found = yield from rows.page(FoundId, "id_of", seq=seq)
        return [row.id for row in found if row.id.endswith(end)]
    fits = all((sign == "-") == (shape == "-") for sign, shape in zip(prefix, _ID_SHAPE, strict=False))
    if not fits or len(prefix) > len(_ID_SHAPE) or not _ID_START.fullmatch(prefix):
        return []
    first, last = prefix + _ID_SHAPE[len(prefix) :], prefix + _ID_SHAPE.replace("0", "f")[len(prefix) :]
    return [row.id for row in (yield from rows.page(FoundId, "find_ids", first=first, last=last, limit=limit))]


def states(rows: JobRows, job_ids: Sequence[str]) -> Steps[list[SeenJob]]:
    """Return the states of many jobs, without those that do not exist."""
    return (yield from rows.page(SeenJob, "job_states", ids=list(job_ids)))


def leases(rows: JobRows, limit: int, *, seq: int | None = None, expired_only: bool = False) -> Steps[list[LeaseView]]:
    """List active leases, the next to expire first."""
    found = yield from rows.page(ListedLease, "leases", limit=limit, seq=seq, expired_only=expired_only)
    return [
        LeaseView(
            job_id=row.job_id,
            seq=row.seq,
            fence=row.fence,
            queue=row.queue,
            task=row.task,
            worker_id=row.worker_id,
            attempt=row.attempt,
            started_at=to_datetime(row.started_at),
            expires_in=timedelta(microseconds=row.expires_in),
            isolated=bool(row.isolated),
            cancel_asked=bool(row.cancel_asked),
            percent=row.percent,
            note=row.note,
        )
        for row in found
    ]


def cancel_asked(rows: JobRows, worker_id: str) -> Steps[list[Lease]]:
    """Return the worker's leases whose jobs are to be cancelled."""
    return [Lease(*row) for row in (yield from rows.page(LeaseKey, "cancel_asked", worker_id=worker_id))]


def unacknowledged_leases(rows: JobRows, worker_id: str, after: int) -> Steps[list[Lease]]:
    """Return the worker's leases under fences larger than `after`, the largest that it has received."""
    found = yield from rows.page(LeaseKey, "unacknowledged_leases", worker_id=worker_id, after=after)
    return [Lease(*row) for row in found]
