"""Enqueue jobs, all or none.

Small batches are inserted by one statement. Large ones are copied in, in a transaction that first reserves their seqs;
if one of the ids exists already, the COPY fails as a whole, and the jobs are inserted by the statement, which can skip
existing ids.

Every verb notifies waiting workers, also of jobs that run later: an idle worker waits until the next due time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.backends.postgres.verbs.copying import job_row, ready_row, scheduled_row, stream
from holdfast.backends.sql.job_writes import count_row
from holdfast.backends.sql.steps import Numbers, Rows, each, load, rows, run
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob
from holdfast.model.turn import turn_of
from holdfast.store.steps import Place, Steps, became_ready

CHUNK = 5_000
_encode = msgspec.json.encode

LaneIds = Mapping[tuple[str, str], int]


def _headers(job: NewJob) -> str | None:
    return _encode(job.headers).decode() if job.headers else None


def insert(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[list[bool]]:
    """Insert jobs by statement; False for each whose id exists already."""
    found: Rows = []
    if len(jobs) == 1:
        found = yield from _insert_one(jobs[0], lanes)
    else:
        for start in range(0, len(jobs), CHUNK):
            found += yield from _insert_some(jobs[start : start + CHUNK], lanes)
    yield from became_ready([(lane_id, turn, seq) for _, lane_id, turn, seq, is_ready in found if is_ready])
    return _verdicts(jobs, {row[0] for row in found})


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


class OrderKey(NamedTuple):
    """An order key, locked until the end of the transaction; `head_seq` 0: it has no head yet."""

    line_id: int
    head_seq: int


def insert_ordered(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[list[bool]]:
    """Insert jobs, some with an order key; the keys are locked first, so that seqs increase along each key."""
    keys = yield from _take_order_keys([(job.queue, job.order_key) for job in jobs if job.order_key is not None])
    vacant = [key.line_id for key in keys.values() if not key.head_seq]
    heads: dict[int, int] = {}
    found: Rows = []
    for start in range(0, len(jobs), CHUNK):
        chunk = jobs[start : start + CHUNK]
        some = yield from rows("enqueue_ordered", **_columns(chunk, lanes), **_key_columns(chunk, keys, heads))
        heads.update({line_id: seq for _, _, _, seq, _, line_id in some if line_id is not None})
        found += some
    if heads:
        yield from run("set_heads", line_ids=Numbers(heads), seqs=Numbers(heads.values()))
    empty = [line_id for line_id in vacant if line_id not in heads]
    if empty:
        yield from run("drop_order_keys", line_ids=Numbers(empty))
    yield from became_ready([(lane_id, turn, seq) for _, lane_id, turn, seq, is_ready, _ in found if is_ready])
    return _verdicts(jobs, {row[0] for row in found})


def _take_order_keys(wanted: Sequence[tuple[str, str]]) -> Steps[dict[tuple[str, str], OrderKey]]:
    names = list(dict.fromkeys(wanted))
    found = yield from rows(
        "take_order_keys", queues=[queue for queue, _ in names], order_keys=[order_key for _, order_key in names]
    )
    return {(queue, order_key): OrderKey(line_id, head_seq) for queue, order_key, line_id, head_seq in found}


def _key_columns(
    jobs: Sequence[NewJob], keys: Mapping[tuple[str, str], OrderKey], heads: Mapping[int, int]
) -> dict[str, object]:
    joined = [None if job.order_key is None else keys[job.queue, job.order_key] for job in jobs]
    return {
        "order_keys": [job.order_key for job in jobs],
        "line_ids": [key and key.line_id for key in joined],
        "vacant": [key is not None and not key.head_seq and key.line_id not in heads for key in joined],
    }


def _instant(job: NewJob) -> int | None:
    return None if job.run_at is None else to_micros(job.run_at)


def _delay(job: NewJob) -> int | None:
    return None if job.delay is None else span_micros(job.delay)


def _verdicts(jobs: Sequence[NewJob], made: set[str]) -> list[bool]:
    """Return for each job whether it is new; an id that is given twice is new only once."""
    verdicts: list[bool] = []
    for job in jobs:
        verdicts.append(job.id in made)
        made.discard(job.id)
    return verdicts


def copy(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[list[bool]]:
    """Copy jobs in; fails as a whole with a unique violation if an id exists already.

    Rows are encoded while the server reads them: encoding all of them first could exceed the idle timeout of the
    transaction.
    """
    ((now, seqs),) = yield from rows("reserve_seqs", number=len(jobs))
    ready: list[bytes] = []
    scheduled: list[bytes] = []
    places: list[Place] = []

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
    numbers = Counter(lanes[job.queue, job.task] for job in jobs)
    counted = [count_row(now, lane_id, {"enqueued": number}) for lane_id, number in numbers.items()]
    yield from each("count_events", counted)
    yield from became_ready(places)
    return [True] * len(jobs)


def _run_at(job: NewJob, now: int) -> int:
    if job.run_at is not None:
        return to_micros(job.run_at)
    if job.delay is not None:
        return now + span_micros(job.delay)
    return now
