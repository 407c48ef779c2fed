"""Read-only lists and counts for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.backends.sql.steps import row, rows
from holdfast.errors import JobNotFound
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.model.turn import run_at_of
from holdfast.store.steps import Steps
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
_ID_SHAPE = "00000000-0000-0000-0000-000000000000"
_ID_START = re.compile(r"[0-9a-f-]*")


def job(job_id: str) -> Steps[JobDetails]:
    """Return all that is known of a job."""
    found = yield from row("job_view", id=job_id)
    if found is None:
        message = f"no job has the id {job_id}: it never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    view = _view(found)
    payload, headers, timeout, result = found[15:19]
    attempts = yield from rows("job_attempts", seq=view.seq)
    held = yield from leases(1, seq=view.seq)
    return JobDetails(
        job=view,
        payload=payload,
        headers=_decode_headers(headers) if headers else {},
        result=result,
        attempts=[AttemptView(*attempt) for attempt in attempts],
        lease=held[0] if held else None,
        timeout=timeout,
    )


def _view(found: Sequence[Any]) -> JobView:
    return JobView(
        id=found[0],
        seq=found[1],
        queue=found[2],
        task=found[3],
        state=JobState(found[4]),
        priority=found[5],
        attempt=found[6],
        max_attempts=found[7],
        enqueued_us=found[8],
        run_us=run_at_of(found[9], found[5]),
        started_us=found[10],
        finished_us=found[11],
        worker_id=found[12],
        reason=found[13],
        order_key=found[14],
    )


def find_ids(prefix: str, limit: int) -> Steps[list[str]]:
    """Return ids that begin with a prefix."""
    first, last = prefix + _ID_SHAPE[len(prefix) :], prefix + _ID_SHAPE.replace("0", "f")[len(prefix) :]
    fits = all((sign == "-") == (shape == "-") for sign, shape in zip(prefix, _ID_SHAPE, strict=False))
    if not fits or len(prefix) > len(_ID_SHAPE) or not _ID_START.fullmatch(prefix):
        return []
    return [job_id for (job_id,) in (yield from rows("find_ids", first=first, last=last, limit=limit))]


def jobs(selection: JobFilter) -> Steps[JobPage]:
    """List one page."""
    names = {"queue": selection.queue, "task": selection.task, "limit": selection.limit}
    is_waiting = selection.state in {JobState.READY, JobState.SCHEDULED}
    if is_waiting:
        turn, seq = map(_place, selection.cursor.split("/")) if selection.cursor else (-_LATEST, 0)
        found = yield from rows(f"list_{selection.state}", **names, after_turn=turn, after_seq=seq)
    elif selection.state is JobState.BLOCKED:
        found = yield from rows("list_blocked", **names, after_seq=_place(selection.cursor or "0"))
    else:
        before = _place(selection.cursor) if selection.cursor else _LATEST
        found = yield from rows(f"list_{selection.state}", **names, before=before)
    views = [_view(each) for each in found]
    if len(views) < selection.limit or not views:
        return JobPage(views, None)
    last = views[-1]
    if not is_waiting:
        return JobPage(views, str(last.seq))
    place = last.run_us if selection.state is JobState.SCHEDULED else found[-1][9]
    return JobPage(views, f"{place}/{last.seq}")


def _place(text: str) -> int:
    """Return a part of a cursor; raises `ValueError` for what no page has given: the server would take it."""
    place = int(text)
    if abs(place) > _LATEST:
        raise ValueError(text)
    return place


def leases(limit: int, *, seq: int | None = None, expired_only: bool = False) -> Steps[list[LeaseView]]:
    """List active leases, the next to expire first."""
    found = yield from rows("leases", limit=limit, seq=seq, expired_only=expired_only)
    return [
        LeaseView(
            job_id=each[0],
            seq=each[1],
            fence=each[2],
            queue=each[3],
            task=each[4],
            worker_id=each[5],
            attempt=each[6],
            started_us=each[7],
            expires_in=timedelta(microseconds=each[8]),
            isolated=each[9],
            cancel_asked=each[10],
            percent=each[11],
            note=each[12],
        )
        for each in found
    ]


def queues() -> Steps[list[QueueView]]:
    """List all queues with their counts."""
    return [
        QueueView(
            name=name,
            paused=paused,
            ready=ready,
            scheduled=scheduled,
            blocked=blocked,
            running=running,
            failed=failed,
            oldest_ready=None if due is None else timedelta(microseconds=max(0, due)),
        )
        for name, paused, ready, running, scheduled, blocked, failed, due in (yield from rows("queues"))
    ]


def workers() -> Steps[list[WorkerView]]:
    """List the workers that have reported."""
    return [
        WorkerView(_decode_beat(beat), started, timedelta(microseconds=silent))
        for beat, started, silent in (yield from rows("workers"))
    ]


def counts(since: timedelta) -> Steps[list[Count]]:
    """Return the counts of the time since."""
    return [Count(*each) for each in (yield from rows("counts", since=span_micros(since)))]


def outstanding(tasks: Sequence[str], served: Sequence[str] | None) -> Steps[Outstanding]:
    """Count what is left to do."""
    known = set(tasks)
    counted: Counter[str] = Counter()
    for state, queue, task, paused, number in (yield from rows("outstanding")):
        if served is not None and queue not in served:
            continue
        if paused:
            counted["paused"] += number
        elif state in {"ready", "retrying", "blocked"} and task not in known:
            counted["unknown"] += number
        else:
            counted["blocked" if state == "behind running" else state] += number
    names = ("ready", "retrying", "blocked", "running", "delayed", "paused", "unknown")
    return Outstanding(**{name: counted[name] for name in names})
