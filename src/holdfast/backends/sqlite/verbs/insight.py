"""Read-only lists and counts for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.damage import headers_of, readable
from holdfast.backends.sqlite.verbs.operate import Place, find
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.model.turn import PRIORITY_STEP, run_at_of
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
_STEP = {"priority_step": span_micros(PRIORITY_STEP)}
_decode_beat = msgspec.json.Decoder(WorkerBeat).decode


def job(tx: Tx, job_id: str) -> JobDetails:
    """Return all that is known of a job."""
    place = find(tx, job_id)
    payload, headers, timeout = tx.row("job_body", {"id": job_id})
    return JobDetails(
        job=_view_of(tx, place),
        payload=readable(payload),
        headers=headers_of(headers) or {},
        result=tx.value("job_result", {"id": job_id}),
        attempts=[AttemptView(*row) for row in tx.rows("job_attempts", {"seq": place.seq})],
        lease=next(iter(_leases(tx, 1, job_id=job_id)), None),
        timeout=timeout,
    )


def _view_of(tx: Tx, place: Place) -> JobView:
    """Read one row of the list of its state, by a cursor just before it."""
    seq, lane_id, turn, priority, state, _ = place
    parameters: dict[str, object] = {"queue": None, "task": None, "limit": 1}
    if state == JobState.READY:
        lanes = tx.rows("all_lanes", {"queue": None, "task": None})
        queue, task = next((queue, task) for known, queue, task in lanes if known == lane_id)
        before = {"lane_id": lane_id, "queue": queue, "task": task, "after_turn": turn, "after_seq": seq - 1}
        return _view(tx.row("list_ready", {**parameters, **before}))
    if state == JobState.SCHEDULED:
        before = {"after_turn": run_at_of(turn, priority), "after_seq": seq - 1}
        return _view(tx.row("list_scheduled", {**parameters, **before}))
    if state == JobState.BLOCKED:
        return _view(tx.row("list_blocked", {**parameters, "after_seq": seq - 1}))
    return _view(tx.row(f"list_{state}", {**parameters, "before": seq + 1}))


def _view(row: Sequence[Any]) -> JobView:
    return JobView(
        id=row[0],
        seq=row[1],
        queue=row[2],
        task=row[3],
        state=JobState(row[4]),
        priority=row[5],
        attempt=row[6],
        max_attempts=row[7],
        enqueued_us=row[8],
        run_us=run_at_of(row[9], row[5]),
        started_us=row[10],
        finished_us=row[11],
        worker_id=row[12],
        reason=row[13],
        order_key=row[14],
    )


def find_ids(tx: Tx, prefix: str, limit: int) -> list[str]:
    """Return ids that begin with a prefix."""
    return [row[0] for row in tx.rows("find_ids", {"first": prefix, "last": prefix + "g", "limit": limit})]


def jobs(tx: Tx, selection: JobFilter) -> JobPage:
    """List one page."""
    if selection.state in {JobState.READY, JobState.SCHEDULED}:
        return _waiting(tx, selection)
    is_blocked = selection.state is JobState.BLOCKED
    cursor = _place(selection.cursor) if selection.cursor else 0 if is_blocked else _LATEST
    parameters = {"queue": selection.queue, "task": selection.task, "limit": selection.limit}
    rows = tx.rows(f"list_{selection.state}", {**parameters, "after_seq" if is_blocked else "before": cursor})
    views = [_view(row) for row in rows]
    full = len(views) == selection.limit
    return JobPage(views, str(views[-1].seq) if full else None)


def _waiting(tx: Tx, selection: JobFilter) -> JobPage:
    after_turn, after_seq = map(_place, selection.cursor.split("/")) if selection.cursor else (-_LATEST, 0)
    names = {"queue": selection.queue, "task": selection.task}
    after = {"after_turn": after_turn, "after_seq": after_seq, "limit": selection.limit}
    if selection.state is JobState.SCHEDULED:
        rows = tx.rows("list_scheduled", {**names, **after})
        keys = [(run_at_of(row[9], row[5]), row[1]) for row in rows]
    else:
        rows = list[Any]()
        for lane_id, queue, task in tx.rows("all_lanes", names):
            rows += tx.rows("list_ready", {"lane_id": lane_id, "queue": queue, "task": task, **after})
        rows = sorted(rows, key=lambda row: (row[9], row[1]))[: selection.limit]
        keys = [(row[9], row[1]) for row in rows]
    full = len(rows) == selection.limit
    cursor = f"{keys[-1][0]}/{keys[-1][1]}" if full else None
    return JobPage([_view(row) for row in rows], cursor)


def _place(text: str) -> int:
    """Return a part of a cursor; raises `ValueError` for what no page has given."""
    place = int(text)
    if abs(place) > _LATEST:
        raise ValueError(text)
    return place


def leases(tx: Tx, limit: int, *, expired_only: bool) -> list[LeaseView]:
    """List active leases, the next to expire first."""
    return _leases(tx, limit, expired_only=expired_only)


def _leases(tx: Tx, limit: int, *, job_id: str | None = None, expired_only: bool = False) -> list[LeaseView]:
    rows = tx.rows("leases", {"now": tx.now, "limit": limit, "id": job_id, "expired_only": int(expired_only)})
    return [
        LeaseView(
            job_id=row[0],
            seq=row[1],
            fence=row[2],
            queue=row[3],
            task=row[4],
            worker_id=row[5],
            attempt=row[6],
            started_us=row[7],
            expires_in=timedelta(microseconds=row[8]),
            isolated=bool(row[9]),
            cancel_asked=bool(row[10]),
            percent=row[11],
            note=row[12],
        )
        for row in rows
    ]


def queues(tx: Tx) -> list[QueueView]:
    """List all queues with their counts."""
    scheduled: dict[str, int] = dict(tx.rows("scheduled_by_queue"))
    failed: dict[str, int] = dict(tx.rows("failed_by_queue"))
    blocked: dict[str, int] = dict(tx.rows("blocked_by_queue"))
    return [
        QueueView(
            name=name,
            paused=bool(paused),
            ready=ready,
            scheduled=scheduled.get(name, 0),
            blocked=blocked.get(name, 0),
            running=running,
            failed=failed.get(name, 0),
            oldest_ready=None if due is None else timedelta(microseconds=max(0, tx.now - due)),
        )
        for name, paused, ready, running, due in tx.rows("queues", _STEP)
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
    counted: Counter[str] = Counter()
    for queue, task, paused, number in tx.rows("ready_by_lane"):
        if served is None or queue in served:
            counted["paused" if paused else "ready" if task in known else "unknown"] += number
    for queue, task, paused, is_retry, number in tx.rows("waiting_by_lane"):
        if served is None or queue in served:
            due_again = "retrying" if task in known else "unknown"
            counted["paused" if paused else due_again if is_retry else "delayed"] += number
    for queue, _, number in tx.rows("running_by_lane"):
        if served is None or queue in served:
            counted["running"] += number
    for queue, task, paused, runs, is_delayed, number in tx.rows("blocked_by_line", _STEP):
        if served is None or queue in served:
            may_come_up = "blocked" if runs or task in known else "unknown"
            counted["paused" if paused else "delayed" if is_delayed else may_come_up] += number
    names = ("ready", "retrying", "blocked", "running", "delayed", "paused", "unknown")
    return Outstanding(**{name: counted[name] for name in names})
