"""Put jobs in, all or none.

A few go by one statement. Many are copied in, in a transaction that first reserves their seqs; should one of the ids be
known already, all of it is undone and they go by the statement, which can pass over what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.backends.postgres.verbs.copying import job_row, ready_row, scheduled_row, stream
from holdfast.backends.postgres.verbs.lines import Line, LineName, Placed, settle, take_lines
from holdfast.backends.postgres.verbs.moves import Moves
from holdfast.backends.sql.steps import Numbers, Rows, load, rows
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob
from holdfast.model.turn import turn_of
from holdfast.store.steps import Steps

CHUNK = 5_000
_encode = msgspec.json.encode

LaneIds = Mapping[tuple[str, str], int]


def _headers(job: NewJob) -> str | None:
    return _encode(job.headers).decode() if job.headers else None


def insert(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[tuple[list[bool], list[Placed]]]:
    """Insert jobs by statement; False for each whose id is known. Also returns where those lie that are ready."""
    found: Rows = []
    if len(jobs) == 1:
        found = yield from _insert_one(jobs[0], lanes)
    else:
        for start in range(0, len(jobs), CHUNK):
            found += yield from _insert_some(jobs[start : start + CHUNK], lanes)
    ready = [(lane_id, turn, seq) for _, lane_id, turn, seq, is_ready in found if is_ready]
    return _verdicts(jobs, {row[0] for row in found}), ready


def _insert_one(job: NewJob, lanes: LaneIds) -> Steps[Rows]:
    return (
        yield from rows(
            "enqueue_one",
            id=job.id,
            lane_id=lanes[job.queue, job.task],
            payload=job.payload,
            headers=_headers(job),
            priority=job.priority,
            max_attempts=job.max_attempts,
            timeout=job.timeout,
            run_at=_instant(job),
            delay=_delay(job),
        )
    )


def _insert_some(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[Rows]:
    return (yield from rows("enqueue", **_columns(jobs, lanes)))


def _columns(jobs: Sequence[NewJob], lanes: LaneIds) -> dict[str, object]:
    return {
        "ids": [job.id for job in jobs],
        "lane_ids": Numbers(lanes[job.queue, job.task] for job in jobs),
        "payloads": [job.payload for job in jobs],
        "headers": [_headers(job) for job in jobs],
        "priorities": Numbers(job.priority for job in jobs),
        "max_attempts": Numbers(job.max_attempts for job in jobs),
        "timeouts": [job.timeout for job in jobs],
        "run_ats": [_instant(job) for job in jobs],
        "delays": [_delay(job) for job in jobs],
    }


def insert_in_lines(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[tuple[list[bool], list[Placed]]]:
    """Insert jobs of which some have an order_key; the lines are held first, so that seqs grow along each of them."""
    lines = yield from take_lines((job.queue, job.order_key) for job in jobs if job.order_key is not None)
    vacant = [line.line_id for line in lines.values() if not line.head_seq]
    heads: dict[int, int] = {}
    found: Rows = []
    for start in range(0, len(jobs), CHUNK):
        chunk = jobs[start : start + CHUNK]
        some = yield from rows("enqueue_in_lines", **_columns(chunk, lanes), **_line_columns(chunk, lines, heads))
        heads.update({line_id: seq for _, _, _, seq, _, line_id in some if line_id is not None})
        found += some
    yield from settle(vacant, heads)
    ready = [(lane_id, turn, seq) for _, lane_id, turn, seq, is_ready, _ in found if is_ready]
    return _verdicts(jobs, {row[0] for row in found}), ready


def _line_columns(
    jobs: Sequence[NewJob], lines: Mapping[LineName, Line], heads: Mapping[int, int]
) -> dict[str, object]:
    standing = [None if job.order_key is None else lines[job.queue, job.order_key] for job in jobs]
    return {
        "order_keys": [job.order_key for job in jobs],
        "line_ids": [line and line.line_id for line in standing],
        "vacant": [line is not None and not line.head_seq and line.line_id not in heads for line in standing],
    }


def _instant(job: NewJob) -> int | None:
    return None if job.run_at is None else to_micros(job.run_at)


def _delay(job: NewJob) -> int | None:
    return None if job.delay is None else span_micros(job.delay)


def _verdicts(jobs: Sequence[NewJob], made: set[str]) -> list[bool]:
    """Answer for each job; an id that is given twice is new only once."""
    verdicts: list[bool] = []
    for job in jobs:
        verdicts.append(job.id in made)
        made.discard(job.id)
    return verdicts


def copy(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[tuple[list[bool], list[Placed]]]:
    """Copy jobs in; fails as a whole with a unique violation if an id is known.

    The rows are made while the server takes them in: a transaction that waited for all of them would be ended as idle.
    """
    ((now, seqs),) = yield from rows("reserve_seqs", number=len(jobs))
    ready: list[bytes] = []
    scheduled: list[bytes] = []
    places: list[Placed] = []

    def bodies() -> Iterator[bytes]:
        for seq, job in zip(sorted(seqs), jobs, strict=True):
            lane_id = lanes[job.queue, job.task]
            run_at = _run_at(job, now)
            turn = turn_of(run_at, job.priority)
            payload = job.payload.encode()
            if run_at <= now:
                ready.append(ready_row(lane_id, turn, seq, len(payload)))
                places.append((lane_id, turn, seq))
            else:
                scheduled.append(scheduled_row(run_at, seq))
            yield job_row(
                seq=seq,
                job_id=job.id,
                lane_id=lane_id,
                payload=payload,
                headers=_encode(job.headers) if job.headers else None,
                numbers=(job.priority, job.max_attempts, job.timeout),
                enqueued_at=now,
                turn=turn,
            )

    yield from load("copy_jobs", stream(bodies()))
    if ready:
        yield from load("copy_ready", stream(ready))
    if scheduled:
        yield from load("copy_scheduled", stream(scheduled))
    moves = Moves()
    for lane_id, number in Counter(lanes[job.queue, job.task] for job in jobs).items():
        moves.count(now, lane_id, enqueued=number)
    yield from moves.write()
    return [True] * len(jobs), places


def _run_at(job: NewJob, now: int) -> int:
    if job.run_at is not None:
        return to_micros(job.run_at)
    if job.delay is not None:
        return now + span_micros(job.delay)
    return now
