"""Lease ready jobs to a worker.

The jobs of a claim are the front of each lane involved, up to some (turn, seq). So they are read once, as one JSON text
per lane, and moved by range: three statements per lane, however many jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec

from holdfast.backends.sqlite.connection import Tx, as_json
from holdfast.model.instants import span_micros
from holdfast.model.job import LeasedJob
from holdfast.model.payload_limit import within
from holdfast.store.values import Claim, ClaimRequest
from holdfast.store.verbs.job_views import headers_of, readable

_NO_BOUND = 2**63 - 1
_PLACE = attrgetter("turn", "seq")


class _Row(LeasedJob, frozen=True, gc=False, array_like=True):
    """A leased job in the order of the columns of `front_of_lane`."""


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
Lane = tuple[int, str, str, int]  # lane_id, queue, task, turn of the first job


def claimable(tx: Tx, request: ClaimRequest) -> list[Lane]:
    """Return the lanes with jobs for this worker, ordered by first turn."""
    queues = None if request.queues is None else as_json(request.queues)
    return tx.rows("claimable_lanes", {"tasks": as_json(request.tasks), "queues": queues})


def claim(tx: Tx, request: ClaimRequest) -> Claim:
    """Lease the first jobs by turn and seq over all lanes, all under one fence."""
    lanes = claimable(tx, request)
    if not lanes or request.limit < 1:
        return Claim([])
    fence = int(tx.value("take_fence"))
    front, size = _front(tx, lanes, request.limit, fence)
    jobs = front if size <= request.max_bytes else within(front, request.max_bytes)
    last = {(job.queue, job.task): job for job in jobs} if len(lanes) > 1 else {lanes[0][1:3]: jobs[-1]}
    lease = {
        "fence": fence,
        "worker_id": request.worker_id,
        "now": tx.now,
        "span": span_micros(request.lease),
        "isolates": int(request.isolates),
    }
    for lane_id, queue, task, _ in lanes:
        job = last.get((queue, task))
        if job is not None:
            bounds = {"lane_id": lane_id, "turn": job.turn, "seq": job.seq}
            tx.run("lease_front", {**bounds, **lease})
            tx.run("leave_front", bounds)
    return Claim(cast("list[LeasedJob]", jobs), is_cut=len(jobs) < len(front))


def _front(tx: Tx, lanes: list[Lane], limit: int, fence: int) -> tuple[list[_Row], int]:
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
        jobs = sorted(jobs + front, key=_PLACE)[:limit] if jobs else front
        if len(jobs) == limit:
            bound = jobs[-1].turn
    return jobs, size


def _mended(row: Sequence[Any], queue: str, task: str, fence: int) -> _Row:
    job_id, seq, payload, headers, *middle, order_key = row
    columns = (job_id, seq, queue, task, readable(payload), headers_of(headers), *middle, fence, order_key)
    return msgspec.convert(columns, _Row)
