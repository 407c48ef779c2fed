"""Lease ready jobs to a worker.

The jobs of a claim are the front of each lane involved, up to some (turn, seq). So they are read once, as one text per
lane, and moved by range: three statements per lane, however many jobs. Only where the payloads are too large for one
claim, or damaged, they are read row by row: a text of all of them would take several times their size in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.limited_claims import settle
from holdfast.backends.sqlite.connection import Tx, as_json
from holdfast.backends.sqlite.execute import direct
from holdfast.model.instants import span_micros
from holdfast.model.job import LeasedJob
from holdfast.model.limits import LanePlace, LimitUse, Shares, limits_of, share_out
from holdfast.model.payload_limit import within
from holdfast.store.steps import Steps
from holdfast.store.values import Claim, ClaimRequest
from holdfast.store.verbs.job_views import headers_of, readable

_NO_BOUND = 2**63 - 1
_LONGEST_TEXT = 10**9  # bytes: the limit that SQLite has by itself
_MOST_BESIDES_PAYLOAD = 2048  # bytes of a job, in the usual case; with longer headers it may be read row by row
_PLACE = attrgetter("turn", "seq")


class _ClaimedRow(LeasedJob, frozen=True, gc=False, array_like=True):
    """A leased job in the order of the columns of `front_of_lane`."""


_decode_lines = msgspec.json.Decoder(_ClaimedRow).decode_lines
Lane = tuple[int, str, str, int, int]  # lane_id, queue, task, turn of the first job, whether limits concern it


class Claimable(NamedTuple):
    """The lanes to claim from, ordered by first turn, and how many jobs of each; without `limits` as many as wanted."""

    lanes: list[Lane]
    limits: Sequence[LimitUse] = ()
    shares: Shares = Shares({}, frozenset(), is_held_back=False)

    def claimed(self, claim: Claim) -> Steps[Claim]:
        """Return what the claim answers."""
        return (yield from settle(claim, self.limits, self.shares)) if self.limits else claim


def look(request: ClaimRequest) -> Steps[Claim | None]:
    """Return the answer of a claim that finds no jobs; None if it finds some."""
    found = yield from direct(lambda tx: claimable(tx, request))()
    return None if found.lanes else (yield from found.claimed(Claim([])))


def claim(request: ClaimRequest) -> Steps[Claim]:
    """Lease the first jobs by turn and seq over all lanes, all under one fence."""
    found, claim = yield from direct(lambda tx: _claim(tx, request))()
    return (yield from found.claimed(claim))


def claimable(tx: Tx, request: ClaimRequest) -> Claimable:
    """Return the lanes with jobs for this worker that no limit refuses."""
    queues = None if request.queues is None else as_json(request.queues)
    lanes: list[Lane] = tx.rows("claimable_lanes", {"tasks": as_json(request.tasks), "queues": queues})
    if not any(lane[4] for lane in lanes):
        return Claimable(lanes)
    limits = [_counted(tx, LimitUse(*row)) for row in tx.rows("claim_limits", {"now": tx.now})]
    rooms = {use.key: use.room for use in limits}
    front: list[LanePlace] = []
    for lane_id, queue, task, *_ in lanes:
        room = min((rooms[key] for key in limits_of(queue, task) if key in rooms), default=request.limit)
        # One more than may be claimed: whether a limit refuses a job is part of the answer.
        places = {"lane_id": lane_id, "limit": min(request.limit, room + 1)}
        front += [LanePlace(*row) for row in tx.rows("front_places", places)]
    slots = request.limit if request.slots is None else request.slots
    names = {lane_id: (queue, task) for lane_id, queue, task, *_ in lanes}
    shares = share_out(front, names, rooms, limit=request.limit, slots=slots)
    return Claimable([lane for lane in lanes if shares.by_lane.get(lane[0])], limits, shares)


def _counted(tx: Tx, use: LimitUse) -> LimitUse:
    """Return a limit with its use, which is counted up to the limit; that of keys is counted elsewhere."""
    if use.max_running is None or use.kind == "key":
        return use
    statement = "running_of_queue" if use.kind == "queue" else "running_of_task"
    return use._replace(running=int(tx.value(statement, {"name": use.name, "most": use.max_running})))


def _claim(tx: Tx, request: ClaimRequest) -> tuple[Claimable, Claim]:
    found = claimable(tx, request)
    if not found.lanes or request.limit < 1:
        return found, Claim([])
    lanes = found.lanes
    fence = int(tx.value("take_fence"))
    jobs, is_cut = _front(tx, found, request, fence)
    if not jobs:  # a damaged store: ready rows without jobs
        return Claimable([]), Claim([])
    last = {(job.queue, job.task): job for job in jobs} if len(lanes) > 1 else {lanes[0][1:3]: jobs[-1]}
    span, isolates = span_micros(request.lease), int(request.isolates)
    lease = {"fence": fence, "worker_id": request.worker_id, "now": tx.now, "span": span, "isolates": isolates}
    for lane_id, queue, task, *_ in lanes:
        job = last.get((queue, task))
        if job is not None:
            bounds = {"lane_id": lane_id, "turn": job.turn, "seq": job.seq}
            tx.run("lease_front", {**bounds, **lease})
            tx.run("leave_front", bounds)
    return found, Claim(list(jobs), is_cut=is_cut)


def _front(tx: Tx, found: Claimable, request: ClaimRequest, fence: int) -> tuple[list[_ClaimedRow], bool]:
    """Merge the fronts of the lanes; a lane whose first job comes after the last one needed is not read.

    Returns the jobs, and whether there were more, but their payloads exceed `max_bytes`.
    """
    jobs: list[_ClaimedRow] = []
    size = 0  # at least that of the payloads
    bound = _NO_BOUND
    is_cut = False
    for lane_id, queue, task, head, _ in found.lanes:
        if head > bound:
            break
        share = found.shares.by_lane.get(lane_id, request.limit)
        stretch = {"lane_id": lane_id, "last_turn": bound, "limit": share}
        try:
            with tx.at_most(_most_text(request)):
                text = tx.value("front_of_lane", {**stretch, "queue": queue, "task": task, "fence": fence})
            front, length, is_short = _decode_lines(text or ""), len(text or ""), False
        except (sqlite3.OperationalError, sqlite3.DataError, msgspec.MsgspecError):  # a damaged row, or too much
            front, is_short = _by_row(tx, stretch, (queue, task, fence), request.max_bytes)
            length = sum(len(job.payload) for job in front)
        size += length
        last = _PLACE(jobs[-1]) if is_cut else None
        jobs = sorted(jobs + front, key=_PLACE)[: request.limit] if jobs else front
        if last is not None:
            jobs = [job for job in jobs if _PLACE(job) <= last]
        if size > request.max_bytes:
            kept = within(jobs, request.max_bytes)
            is_short = is_short or len(kept) < len(jobs)
            jobs = kept
        is_cut = is_cut or is_short
        if len(jobs) == request.limit or is_cut:
            bound = jobs[-1].turn
    return jobs, is_cut


def _most_text(request: ClaimRequest) -> int:
    """Return the size of a text that has room for `max_bytes` of payload, each character escaped, and for the rest."""
    return min(_LONGEST_TEXT, 2 * request.max_bytes + _MOST_BESIDES_PAYLOAD * request.limit)


def _by_row(
    tx: Tx, stretch: Mapping[str, object], common: tuple[str, str, int], max_bytes: int
) -> tuple[list[_ClaimedRow], bool]:
    """Read the front of a lane row by row; return the jobs within `max_bytes`, and whether there were more."""
    count = 0

    def counted() -> Iterator[_ClaimedRow]:
        nonlocal count
        for row in tx.each("front_of_lane_by_row", stretch):
            count += 1
            yield _mended(row, *common)

    front = within(counted(), max_bytes)
    return front, len(front) < count


def _mended(row: Sequence[Any], queue: str, task: str, fence: int) -> _ClaimedRow:
    job_id, seq, payload, headers, *middle, order_key = row
    columns = (job_id, seq, queue, task, readable(payload), headers_of(headers), *middle, fence, order_key)
    return msgspec.convert(columns, _ClaimedRow)
