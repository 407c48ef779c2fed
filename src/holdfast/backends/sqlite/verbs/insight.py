"""Read-only lists and counts for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.operate import find
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.model.turn import run_at_of
from holdfast.store.values import (
    AttemptView,
    Count,
    JobDetails,
    JobFilter,
    JobPage,
    JobView,
    LeaseView,
    Outstanding,
    QueueView,
    WorkerBeat,
    WorkerView,
)

_LATEST = 2**63 - 1
_decode_beat = msgspec.json.Decoder(WorkerBeat).decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def job(tx: Tx, job_id: str) -> JobDetails:
    """Return all that is known of a job."""
    place = find(tx, job_id)
    payload, headers = tx.row("job_body", {"id": job_id})
    return JobDetails(
        job=_view_of(tx, place.seq, JobState(place.state), place.lane_id, place.turn, place.priority),
        payload=payload,
        headers=_decode_headers(headers) if headers else {},
        result=tx.value("job_result", {"id": job_id}),
        attempts=[AttemptView(*row) for row in tx.rows("job_attempts", {"seq": place.seq})],
        lease=next(iter(_leases(tx, 1, job_id=job_id)), None),
    )


def _view_of(tx: Tx, seq: int, state: JobState, lane_id: int, turn: int, priority: int) -> JobView:  # noqa: PLR0913, PLR0917
    """Read one row of the list of its state, by a cursor just before it."""
    parameters: dict[str, object] = {"queue": None, "task": None, "limit": 1}
    if state is JobState.READY:
        lanes = tx.rows("all_lanes", {"queue": None, "task": None})
        queue, task = next((queue, task) for known, queue, task in lanes if known == lane_id)
        before = {"lane_id": lane_id, "queue": queue, "task": task, "after_turn": turn, "after_seq": seq - 1}
        return _view(tx.row("list_ready", {**parameters, **before}))
    if state is JobState.SCHEDULED:
        before = {"after_turn": run_at_of(turn, priority), "after_seq": seq - 1}
        return _view(tx.row("list_scheduled", {**parameters, **before}))
    return _view(tx.row(f"list_{state}", {**parameters, "before": seq + 1}))


def _view(row: Sequence[object]) -> JobView:
    job_id, seq, queue, task, state, priority, attempt, max_attempts, enqueued, turn, *rest = row
    return JobView(
        job_id, seq, queue, task, JobState(str(state)), priority, attempt, max_attempts, enqueued,  # type: ignore[arg-type]
        run_at_of(turn, priority), *rest,  # type: ignore[arg-type]
    )  # fmt: skip


def find_ids(tx: Tx, prefix: str, limit: int) -> list[str]:
    """Return ids that begin with a prefix."""
    return [row[0] for row in tx.rows("find_ids", {"first": prefix, "last": prefix + "g", "limit": limit})]


def jobs(tx: Tx, selection: JobFilter) -> JobPage:
    """List one page."""
    if selection.state is JobState.BLOCKED:
        return JobPage([], None)
    if selection.state in {JobState.READY, JobState.SCHEDULED}:
        return _waiting(tx, selection)
    before = int(selection.cursor) if selection.cursor else _LATEST
    names = {"queue": selection.queue, "task": selection.task}
    rows = tx.rows(f"list_{selection.state}", {**names, "before": before, "limit": selection.limit})
    views = [_view(row) for row in rows]
    full = len(views) == selection.limit
    return JobPage(views, str(views[-1].seq) if full else None)


def _waiting(tx: Tx, selection: JobFilter) -> JobPage:
    after_turn, after_seq = map(int, selection.cursor.split("/")) if selection.cursor else (-_LATEST, 0)
    names = {"queue": selection.queue, "task": selection.task}
    after = {"after_turn": after_turn, "after_seq": after_seq, "limit": selection.limit}
    if selection.state is JobState.SCHEDULED:
        rows = tx.rows("list_scheduled", {**names, **after})
        keys = [(run_at_of(row[9], row[5]), row[1]) for row in rows]
    else:
        rows = []
        for lane_id, queue, task in tx.rows("all_lanes", names):
            rows += tx.rows("list_ready", {"lane_id": lane_id, "queue": queue, "task": task, **after})
        rows = sorted(rows, key=lambda row: (row[9], row[1]))[: selection.limit]
        keys = [(row[9], row[1]) for row in rows]
    full = len(rows) == selection.limit
    cursor = f"{keys[-1][0]}/{keys[-1][1]}" if full else None
    return JobPage([_view(row) for row in rows], cursor)


def leases(tx: Tx, limit: int, *, expired_only: bool) -> list[LeaseView]:
    """List active leases, the next to expire first."""
    return _leases(tx, limit, expired_only=expired_only)


def _leases(tx: Tx, limit: int, *, job_id: str | None = None, expired_only: bool = False) -> list[LeaseView]:
    rows = tx.rows(
        "leases", {"now": tx.now, "limit": limit, "id": job_id, "expired_only": int(expired_only)}
    )
    return [
        LeaseView(*head, timedelta(microseconds=left), bool(isolated), bool(cancel), percent, note)
        for *head, left, isolated, cancel, percent, note in rows
    ]


def queues(tx: Tx) -> list[QueueView]:
    """List all queues with their counts."""
    scheduled: dict[str, int] = dict(tx.rows("scheduled_by_queue"))
    failed: dict[str, int] = dict(tx.rows("failed_by_queue"))
    return [
        QueueView(
            name=name,
            paused=bool(paused),
            ready=ready,
            scheduled=scheduled.get(name, 0),
            blocked=0,
            running=running,
            failed=failed.get(name, 0),
            oldest_ready=None if head is None else timedelta(microseconds=max(0, tx.now - head)),
        )
        for name, paused, ready, running, head in tx.rows("queues")
    ]


def workers(tx: Tx) -> list[WorkerView]:
    """List the workers that have reported."""
    return [
        WorkerView(_decode_beat(beat), started, timedelta(microseconds=silent))
        for beat, started, silent in tx.rows("workers", {"now": tx.now})
    ]


def counts(tx: Tx, since: timedelta) -> list[Count]:
    """Return the counts of the time since."""
    return [Count(*row) for row in tx.rows("counts", {"since": tx.now - span_micros(since)})]


def outstanding(tx: Tx, tasks: Sequence[str], served: Sequence[str] | None) -> Outstanding:
    """Count what is left to do."""
    known = set(tasks)
    ready = retrying = delayed = held_back = unknown = running = 0
    for queue, task, paused, number in tx.rows("ready_by_lane"):
        if served is not None and queue not in served:
            continue
        if paused:
            held_back += number
        elif task not in known:
            unknown += number
        else:
            ready += number
    for queue, task, paused, is_retry, number in tx.rows("waiting_by_lane"):
        if served is not None and queue not in served:
            continue
        if paused:
            held_back += number
        elif not is_retry:
            delayed += number
        elif task not in known:
            unknown += number
        else:
            retrying += number
    for queue, _, number in tx.rows("running_by_lane"):
        if served is None or queue in served:
            running += number
    return Outstanding(ready, retrying, 0, running, delayed, held_back, unknown)
