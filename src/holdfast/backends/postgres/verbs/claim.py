"""Lease ready jobs to a worker: in one statement, or, where limits have room, under their locks."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.limited_claims import settle
from holdfast.backends.sql.steps import Ask, Rows, records, rows, together
from holdfast.model.instants import MICROSECOND, span_micros
from holdfast.model.job import LeasedJob
from holdfast.model.limits import LanePlace, LimitKey, LimitUse, Shares, share_out
from holdfast.store.claim_floor import Place
from holdfast.store.steps import Steps
from holdfast.store.values import Claim, ClaimRequest

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_place = itemgetter(10, 1)  # turn and seq
_BARRED = -1  # the mark of a claim that took nothing, because a limit has room


class Taken(NamedTuple):
    """The jobs that a claim statement leased, and the place of the last one in each lane.

    `is_barred`: none, because a queue or task with a limit has jobs and room: use `claim_limited`.
    """

    claim: Claim
    last: dict[int, Place]
    is_barred: bool = False


def claim(request: ClaimRequest, floors: dict[int, Place]) -> Steps[Taken]:
    """Claim the first jobs by turn and seq over all lanes, from their floors on; one fence for all of them."""
    found = yield from rows(
        "claim",
        **_claimer(request),
        **_scope(request),
        limit=request.limit,
        floor_lanes=list(floors),
        floor_turns=[turn for turn, _ in floors.values()],
        floor_seqs=[seq for _, seq in floors.values()],
    )
    if found and found[-1][1] is None:  # the row about limits has no seq
        *found, (*_, wait, _, _, number) = found
        if number == _BARRED:
            return Taken(Claim([]), {}, is_barred=True)
        taken = _taken(found)
        wait = None if wait is None else wait * MICROSECOND
        return taken._replace(claim=msgspec.structs.replace(taken.claim, is_limited=True, wait=wait))
    return _taken(found)


def claim_limited(request: ClaimRequest) -> Steps[Claim]:
    """Claim under the locks of the limits: they are counted by a later statement, which sees what was claimed before.

    Limits that another session holds are treated as full; the worker asks again soon.
    """
    scope = _scope(request)
    queues, tasks = yield from together(
        Ask("lock_queue_limits", {"queues": scope["queues"]}), Ask("lock_task_limits", {"tasks": scope["tasks"]})
    )
    mine = {LimitKey("queue", name) for (name,) in queues} | {LimitKey("task", name) for (name,) in tasks}
    uses = yield from records(LimitUse, "claim_limits")
    rooms = {use.key: use.room if use.key in mine or use.kind == "key" else 0 for use in uses}
    lanes: dict[int, tuple[str, str]] = {}
    front: list[LanePlace] = []
    for lane_id, queue, task, turn, seq in (yield from rows("lane_fronts", **scope, limit=request.limit)):
        lanes[lane_id] = queue, task
        front.append(LanePlace(turn, seq, lane_id))
    slots = request.limit if request.slots is None else request.slots
    shares = share_out(front, lanes, rooms, limit=request.limit, slots=slots)
    taken = yield from _claim_shares(request, shares)
    return (yield from settle(taken, uses, shares))


def _claim_shares(request: ClaimRequest, shares: Shares) -> Steps[Claim]:
    if not shares.by_lane:
        return Claim([])
    found = yield from rows(
        "claim_shares",
        **_claimer(request),
        lane_ids=list(shares.by_lane),
        shares=list(shares.by_lane.values()),
    )
    return _taken(found).claim


def _claimer(request: ClaimRequest) -> dict[str, Any]:
    return {
        "worker_id": request.worker_id,
        "span": span_micros(request.lease),
        "isolates": request.isolates,
        "max_bytes": request.max_bytes,
    }


def _scope(request: ClaimRequest) -> dict[str, Any]:
    return {
        "tasks": list(request.tasks),
        "queues": None if request.queues is None else list(request.queues),
    }


def _taken(found: Rows) -> Taken:
    found.sort(key=_place)
    jobs: list[LeasedJob] = []
    last: dict[int, Place] = {}
    locked = 0
    for (job_id, seq, queue, task, payload, text, priority, max_attempts, timeout, enqueued, turn, attempt, excused,
         interrupted, lost, fence, order_key, lane_id, locked) in found:  # fmt: skip  # noqa: B007 - each row has it
        headers = None if text is None else _decode_headers(text)
        jobs.append(
            LeasedJob(job_id, seq, queue, task, payload, headers, priority, max_attempts, timeout, enqueued, turn,
                      attempt, excused, interrupted, lost, fence, order_key)
        )  # fmt: skip
        last[lane_id] = (turn, seq)
    return Taken(Claim(jobs, is_cut=locked > len(found)), last)
