"""Lease ready jobs to a worker.

```text
   [lanes, fronts of several lanes]   without locks: how many jobs of each lane are among the first
   [begin; lock that many of each lane, skipping those that others lock]
   [fence; insert running; delete ready; read the bodies; commit]
```

A worker that has just claimed from a single lane locks its front in the first trip.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.mysql.execute import final
from holdfast.backends.mysql.verbs.ranges import ranges
from holdfast.backends.sql.limited_claims import settle
from holdfast.backends.sql.steps import Ask, records, together
from holdfast.model.instants import span_micros
from holdfast.model.job import LeasedJob
from holdfast.model.limits import LanePlace, LimitKey, LimitUse, share_out
from holdfast.store.steps import Steps
from holdfast.store.values import Claim, ClaimRequest

Place = tuple[int, int]
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_START: Place = (-(2**62), 0)


class Lane(NamedTuple):
    """A lane that a worker may claim from."""

    lane_id: int
    queue: str
    task: str
    is_limited: bool


class _LockedReady(NamedTuple):
    """A row of ready that this transaction has locked."""

    turn: int
    seq: int
    lane_id: int
    payload_bytes: int
    attempt: int
    excused: int
    interrupted: int
    lost: int


class TakenFront(NamedTuple):
    """What a claim has leased, the place of the last job of each lane, and the lanes that it may claim from."""

    claim: Claim
    last: Mapping[int, Place]
    lanes: Sequence[Lane]

    @property
    def is_barred(self) -> bool:
        """Whether nothing was claimed because a limit concerns a lane with jobs: use `claim_limited`."""
        return any(lane.is_limited for lane in self.lanes)


def lanes_of(request: ClaimRequest) -> Ask:
    """Return the statement that finds the lanes to claim from."""
    return Ask("claim_lanes", _scope(request), Lane)


def fronts(request: ClaimRequest, lanes: Sequence[Lane], floors: Mapping[int, Place]) -> Steps[dict[int, int]]:
    """Return how many jobs of each lane are among the first over all lanes; no row is locked."""
    if len(lanes) == 1:
        return {lanes[0].lane_id: request.limit}
    some = max(10, 2 * request.limit // max(1, len(lanes)))
    found = yield from _read(lanes, floors, some)
    first = _merged(found, request.limit)
    counted = _counted(first)
    short = [lane for lane in lanes if counted.get(lane.lane_id, 0) == some < request.limit]
    if short:  # these lanes may have more jobs before the last ones of others
        found = {**found, **(yield from _read(short, floors, request.limit))}
        counted = _counted(_merged(found, request.limit))
    return counted


def first_ready(lanes: Sequence[Lane], floors: Mapping[int, Place], limit: int) -> Steps[list[LanePlace]]:
    """Return the places of the first ready jobs over all lanes, from their floors on."""
    return _merged((yield from _read(lanes, floors, limit)), limit)


def _read(lanes: Sequence[Lane], floors: Mapping[int, Place], limit: int) -> Steps[dict[int, list[LanePlace]]]:
    asks = [Ask("lane_front", {**_floor(lane.lane_id, floors), "limit": limit}, LanePlace) for lane in lanes]
    answers = yield from together(*asks)
    return {lane.lane_id: answer for lane, answer in zip(lanes, answers, strict=True)}


def _merged(found: Mapping[int, list[LanePlace]], limit: int) -> list[LanePlace]:
    return heapq.nsmallest(limit, (place for lane in found.values() for place in lane))


def _counted(places: Sequence[LanePlace]) -> dict[int, int]:
    counted: defaultdict[int, int] = defaultdict(int)
    for place in places:
        counted[place.lane_id] += 1
    return dict(counted)


def _floor(lane_id: int, floors: Mapping[int, Place]) -> dict[str, object]:
    turn, seq = floors.get(lane_id, _START)
    return {"lane_id": lane_id, "turn": turn, "seq": seq}


def claim(request: ClaimRequest, floors: Mapping[int, Place], *, guessed: Lane | None = None) -> Steps[TakenFront]:
    """Claim the first jobs by turn and seq over all lanes, from their floors on; one fence for all of them.

    `guessed`: the only lane, as far as the last claim knows.
    """
    locked: Sequence[_LockedReady] = ()
    if guessed is None:
        lanes = yield lanes_of(request)
    else:
        lanes, locked = yield from together(lanes_of(request), _lock(guessed.lane_id, floors, request.limit))
    if not lanes or any(lane.is_limited for lane in lanes):
        return TakenFront(Claim([]), {}, lanes)
    if lanes != [guessed]:
        locked = yield from _lock_shares((yield from fronts(request, lanes, floors)), floors)
    taken, last = yield from _lease(request, locked, lanes, commits=True)
    return TakenFront(taken, last, lanes)


def _lock(lane_id: int, floors: Mapping[int, Place], limit: int) -> Ask:
    return Ask("lock_front", {**_floor(lane_id, floors), "limit": limit}, _LockedReady)


def _lock_shares(shares: Mapping[int, int], floors: Mapping[int, Place]) -> Steps[list[_LockedReady]]:
    if not shares:
        return []
    found = yield from together(*(_lock(lane_id, floors, share) for lane_id, share in sorted(shares.items())))
    return sorted(row for rows_of_lane in found for row in rows_of_lane)


def _lease(
    request: ClaimRequest, locked: Sequence[_LockedReady], lanes: Sequence[Lane], *, commits: bool
) -> Steps[tuple[Claim, dict[int, Place]]]:
    """Move locked rows to running, under a new fence; return the jobs, in order."""
    kept = _within(locked, request.max_bytes)
    if not kept:
        return Claim([]), {}
    holder = {
        "worker_id": request.worker_id,
        "span": span_micros(request.lease),
        "isolates": request.isolates,
    }
    by_lane: defaultdict[int, list[_LockedReady]] = defaultdict(list)
    for row in kept:
        by_lane[row.lane_id].append(row)
    asks = [Ask("take_fence", {})]
    for lane_id, of_lane in by_lane.items():
        asks += _moves(lane_id, of_lane, holder)
    asks.append(Ask("bodies", {"seqs": [row.seq for row in kept]}))
    answers = yield from (final(*asks) if commits else together(*asks))
    bodies = {seq: body for seq, *body in answers[-1]}
    names = {lane.lane_id: (lane.queue, lane.task) for lane in lanes}
    jobs = [_job(row, names[row.lane_id], bodies[row.seq]) for row in kept if row.seq in bodies]
    last = {lane_id: (of_lane[-1].turn, of_lane[-1].seq) for lane_id, of_lane in by_lane.items()}
    return Claim(jobs, is_cut=len(kept) < len(locked)), last


def _within(locked: Sequence[_LockedReady], max_bytes: int) -> Sequence[_LockedReady]:
    """Return the first rows whose payloads fit, at least one; the others are free again at the commit."""
    size = 0
    for number, row in enumerate(locked):
        size += row.payload_bytes
        if size > max_bytes and number:
            return locked[:number]
    return locked


def _moves(lane_id: int, locked: Sequence[_LockedReady], holder: Mapping[str, object]) -> Iterator[Ask]:
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for row in locked:
        turns[row.turn].append(row.seq)
    found = [(turn, ranges(sorted(seqs))) for turn, seqs in turns.items()]
    if len(found) <= 8 and all(parts is not None for _, parts in found):  # noqa: PLR2004 - as many ranges of turns
        for turn, parts in found:
            for part in parts or ():
                stretch = {**part._asdict(), "count": part.size, "lane_id": lane_id, "turn": turn}
                yield Ask("lease_range", {**stretch, **holder})
                yield Ask("leave_front_range", stretch)
        return
    places = {"lane_id": lane_id, "places": [(row.turn, row.seq) for row in locked]}
    yield Ask("lease_listed", {**places, **holder})
    yield Ask("leave_front_listed", places)


def _job(row: _LockedReady, names: tuple[str, str], body: Sequence[Any]) -> LeasedJob:
    job_id, payload, headers, priority, max_attempts, timeout, enqueued_at, order_key, fence = body
    return LeasedJob(
        job_id,
        row.seq,
        *names,
        payload,
        None if headers is None else _decode_headers(headers),
        priority,
        max_attempts,
        timeout,
        enqueued_at,
        row.turn,
        row.attempt + 1,
        row.excused,
        row.interrupted,
        row.lost,
        fence,
        order_key,
    )


def claim_limited(request: ClaimRequest) -> Steps[Claim]:
    """Claim under the locks of the limits: they are counted by a later statement, which sees what was claimed before.

    Limits that another session holds are treated as full; the worker asks again soon.
    """
    scope = _scope(request)
    queues, tasks, lanes = yield from together(
        Ask("lock_queue_limits", {"queues": scope["queues"], "any_queue": scope["any_queue"]}),
        Ask("lock_task_limits", {"tasks": scope["tasks"]}),
        lanes_of(request),
    )
    mine = {LimitKey("queue", name) for (name,) in queues} | {LimitKey("task", name) for (name,) in tasks}
    uses = yield from records(LimitUse, "limits")
    rooms = {use.key: use.room if use.key in mine or use.kind == "key" else 0 for use in uses}
    found = (yield from _read(lanes, {}, request.limit)) if lanes else {}
    names = {lane.lane_id: (lane.queue, lane.task) for lane in lanes}
    slots = request.limit if request.slots is None else request.slots
    front = [place for of_lane in found.values() for place in of_lane]
    shares = share_out(front, names, rooms, limit=request.limit, slots=slots)
    locked = yield from _lock_shares(shares.by_lane, {})
    taken, _ = yield from _lease(request, locked, lanes, commits=False)
    return (yield from settle(taken, uses, shares))


def _scope(request: ClaimRequest) -> dict[str, Any]:
    return {
        "tasks": list(request.tasks),
        "queues": list(request.queues or ()),
        "any_queue": request.queues is None,
    }
