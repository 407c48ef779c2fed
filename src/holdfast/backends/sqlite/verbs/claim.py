"""Lease ready jobs to a worker.

The jobs of a claim are the front of each lane involved, up to some (turn, seq). So they are read once, as one JSON text
per lane, and moved by range: three statements per lane, however many jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.instants import span_micros
from holdfast.model.job import LeasedJob
from holdfast.store.values import Claim, ClaimRequest
from holdfast.store.verbs.job_views import headers_of, readable

_NO_BOUND = 2**63 - 1


class _Row(LeasedJob, frozen=True, gc=False, array_like=True):
    """A leased job in the order of the columns of `front_of_lane`."""


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_encode = msgspec.json.encode


def claimable(tx: Tx, request: ClaimRequest) -> list[tuple[int, str, str, int]]:
    """Return the lanes with jobs for this worker, ordered by first turn: (lane_id, queue, task, first turn)."""
    queues = None if request.queues is None else _encode(request.queues).decode()
    return tx.rows("claimable_lanes", {"tasks": _encode(request.tasks).decode(), "queues": queues})


def claim(tx: Tx, request: ClaimRequest) -> Claim:
    """Lease the first jobs by turn and seq over all lanes, all under one fence."""
    lanes = claimable(tx, request)
    if not lanes or request.limit < 1:
        return Claim([])
    fence = int(tx.value("take_fence"))
    front, size = _front(tx, lanes, request.limit, fence)
    jobs = front if size <= request.max_bytes else _within(front, request.max_bytes)
    for lane_id, last in _last_of_each(lanes, jobs):
        _move(tx, request, lane_id, last)
    return Claim(cast("list[LeasedJob]", jobs), is_cut=len(jobs) < len(front))


def _last_of_each(lanes: list[tuple[int, str, str, int]], jobs: list[_Row]) -> list[tuple[int, _Row]]:
    """Return the id of each lane that has jobs in the claim, with the last of them."""
    if len(lanes) == 1:
        return [(lanes[0][0], jobs[-1])]
    last = {(job.queue, job.task): job for job in jobs}
    return [(lane_id, last[queue, task]) for lane_id, queue, task, _ in lanes if (queue, task) in last]


def _front(tx: Tx, lanes: list[tuple[int, str, str, int]], limit: int, fence: int) -> tuple[list[_Row], int]:
    """Merge the fronts of the lanes; a lane whose first job comes after the last one needed is not read.

    Returns the jobs, and an upper bound for the total size of their payloads.
    """
    jobs: list[_Row] = []
    size = 0
    bound = _NO_BOUND
    for lane_id, queue, task, head in lanes:
        if head > bound:
            break
        stretch = {"lane_id": lane_id, "last_turn": bound, "limit": limit}
        try:
            text = tx.value("front_of_lane", {**stretch, "queue": queue, "task": task, "fence": fence})
            front = _decode_rows(text)
            size += len(text)
        except (sqlite3.OperationalError, msgspec.MsgspecError):  # a damaged row: invalid UTF-8 or headers
            front = [_mended(row, queue, task, fence) for row in tx.rows("damaged_front_of_lane", stretch)]
            size += sum(len(job.payload) for job in front)
        jobs = sorted(jobs + front, key=_place)[:limit] if jobs else front
        if len(jobs) == limit:
            bound = jobs[-1].turn_us
    return jobs, size


def _mended(row: Sequence[Any], queue: str, task: str, fence: int) -> _Row:
    job_id, seq, payload, headers, *rest = row
    *middle, order_key = rest
    columns = (job_id, seq, queue, task, readable(payload), headers_of(headers), *middle, fence, order_key)
    return msgspec.convert(columns, _Row)


def _place(job: _Row) -> tuple[int, int]:
    return (job.turn_us, job.seq)


def _within(jobs: list[_Row], max_bytes: int) -> list[_Row]:
    """Cut the list where the payloads exceed the limit, but keep at least one job."""
    total = 0
    for index, job in enumerate(jobs):
        total += len(job.payload)
        if total > max_bytes and index > 0:
            return jobs[:index]
    return jobs


def _move(tx: Tx, request: ClaimRequest, lane_id: int, last: _Row) -> None:
    bounds = {"lane_id": lane_id, "turn": last.turn_us, "seq": last.seq}
    tx.run(
        "lease_front",
        {
            **bounds,
            "fence": last.fence,
            "worker_id": request.worker_id,
            "now": tx.now,
            "span": span_micros(request.lease),
            "isolates": int(request.isolates),
        },
    )
    tx.run("leave_front", bounds)
