"""Enqueue jobs, all or none.

Small batches are inserted by one statement. Large ones are copied in, in a transaction that first reserves their seqs;
if one of the ids exists already, the COPY fails as a whole, and the jobs are inserted by the statement, which can skip
existing ids.

Every verb notifies waiting workers, also of jobs that run later: an idle worker waits until the next due time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.backends.postgres.verbs.copying import job_row, ready_row, scheduled_row, stream
from holdfast.backends.sql.job_writes import count_row
from holdfast.backends.sql.limit_keys import admit_new
from holdfast.backends.sql.steps import Numbers, Rows, each, load, rows, run
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.store.steps import Place, Steps, became_ready
from holdfast.store.verbs.unique import claims_of

CHUNK = 5_000
NO_KEY = 0  # of the jobs that are blocked by their parents
_encode = msgspec.json.encode

LaneIds = Mapping[tuple[str, str], int]


def add_lanes(queues: Sequence[str], tasks: Sequence[str]) -> Steps[Rows]:
    """Insert missing lanes; return those that the statement sees, and those that it has inserted."""
    return (yield from rows("add_lanes", queues=list(queues), tasks=list(tasks)))


def insert_any(jobs: Sequence[NewJob], lanes: LaneIds, *, joins: bool) -> Steps[list[bool]]:
    """Insert jobs by statement, with or without keys and parents; False for each whose id exists already.

    `joins`: the transaction may stay open for long. Then jobs with limit keys are left to `promote`, so that no key is
    locked meanwhile.
    """
    is_keyed = any(job.order_key is not None or job.limit_key is not None or parents_of(job) for job in jobs)
    return (yield from insert_keyed(jobs, lanes, joins=joins) if is_keyed else insert(jobs, lanes))


def insert(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[list[bool]]:
    """Insert jobs by statement; False for each whose id exists already."""
    found: Rows = []
    if len(jobs) == 1 and unique_of(jobs[0]) is None:
        found = yield from rows("enqueue_one", **_fields(jobs[0], lanes))
    else:
        for start in range(0, len(jobs), CHUNK):
            found += yield from rows("enqueue", **_columns(jobs[start : start + CHUNK], lanes))
    return (yield from _inserted(jobs, found))


def insert_free(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[list[bool]]:
    """Insert jobs with unique keys if no job has taken one of the keys; otherwise none, and return an empty list.

    Raises the driver's unique violation, and inserts none, if that is so only since the statement began, or if an id
    exists already.
    """
    claims = claims_of(jobs)
    if len(jobs) == 1:
        scope = str(claims[0].unique_scope)
        given = {**_fields(jobs[0], lanes), **claims[0]._asdict(), "unique_scope": scope}
        found = yield from rows("enqueue_unique_one", **given)
    else:
        tasks, periods = [claim.task for claim in claims], [claim.period for claim in claims]
        found = yield from rows("enqueue_unique", **_columns(jobs, lanes), tasks=tasks, periods=periods)
    return (yield from _inserted(jobs, found)) if found else []


def insert_keyed(jobs: Sequence[NewJob], lanes: LaneIds, *, joins: bool) -> Steps[list[bool]]:
    """Insert jobs, some with a key; order keys are locked first, so that seqs increase along each key.

    A job with parents is blocked by no key, and joins its key when they have ended.
    """
    ordered = [job for job in jobs if job.order_key is not None and not parents_of(job)]
    wanted = list(dict.fromkeys((job.queue, job.order_key) for job in ordered))
    keys: Rows = []
    if wanted:
        names = {"queues": [queue for queue, _ in wanted], "order_keys": [order_key for _, order_key in wanted]}
        keys = yield from rows("take_order_keys", **names)
    key_ids = {(queue, order_key): key_id for queue, order_key, key_id, _ in keys}
    vacant = {key_id for _, _, key_id, head_seq in keys if not head_seq}  # no job of the key exists yet
    heads: dict[int, int] = {}
    limited: list[int] = []
    found: Rows = []
    for start in range(0, len(jobs), CHUNK):
        chunk = jobs[start : start + CHUNK]
        joined = [
            NO_KEY if parents_of(job) else key_ids[job.queue, job.order_key] if job.order_key is not None else None
            for job in chunk
        ]
        some = yield from rows(
            "enqueue_ordered",
            **_columns(chunk, lanes),
            order_keys=[job.order_key for job in chunk],
            key_ids=joined,
            vacant=[key_id in vacant for key_id in joined],
            limit_keys=[job.limit_key for job in chunk],
            admitted_later=[joins] * len(chunk),
        )
        for job_id, lane_id, turn, seq, is_ready, key_id, is_limited in some:
            found.append((job_id, lane_id, turn, seq, is_ready))
            if key_id is not None:
                heads[key_id] = seq
            if is_limited:
                limited.append(seq)
        vacant -= heads.keys()
    if heads:
        yield from run("set_heads", key_ids=Numbers(heads), seqs=Numbers(heads.values()))
    if vacant:
        yield from run("drop_order_keys", key_ids=Numbers(vacant))
    if limited:
        yield from became_ready((yield from admit_new(limited)))
    return (yield from _inserted(jobs, found))


def _fields(job: NewJob, lanes: LaneIds) -> dict[str, object]:
    return {
        "id": job.id,
        "lane_id": lanes[job.queue, job.task],
        "payload": job.payload,
        "headers": _headers(job),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "run_at": _instant(job),
        "delay": _delay(job),
    }


def _columns(jobs: Sequence[NewJob], lanes: LaneIds) -> dict[str, object]:
    uniques = [unique_of(job) for job in jobs]
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
        "unique_keys": [None if unique is None else unique.key for unique in uniques],
        "unique_scopes": [None if unique is None else str(unique.scope) for unique in uniques],
    }


def _headers(job: NewJob) -> str | None:
    return _encode(job.headers).decode() if job.headers else None


def _instant(job: NewJob) -> int | None:
    return None if job.run_at is None else to_micros(job.run_at)


def _delay(job: NewJob) -> int | None:
    return None if job.delay is None else span_micros(job.delay)


def _inserted(jobs: Sequence[NewJob], found: Rows) -> Steps[list[bool]]:
    """Return for each job whether it is new; an id that is given twice is new only once."""
    yield from became_ready([(lane_id, turn, seq) for _, lane_id, turn, seq, is_ready in found if is_ready])
    made = {job_id for job_id, _, _, _, _ in found}
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
            run_at = due_at(job, now)
            turn = turn_of(run_at, job.priority)
            payload = job.payload.encode()
            if run_at <= now:
                ready.append(ready_row(lane_id, turn, seq, len(payload)))
                places.append((lane_id, turn, seq))
            else:
                scheduled.append(scheduled_row(run_at, seq))
            yield job_row(job, seq, lane_id, payload, now, turn)

    yield from load("copy_jobs", stream(bodies()))
    if ready:
        yield from load("copy_ready", stream(ready))
    if scheduled:
        yield from load("copy_scheduled", stream(scheduled))
    numbers = Counter(lanes[job.queue, job.task] for job in jobs)
    yield from each(
        "count_events", [count_row(now, lane_id, {"enqueued": number}) for lane_id, number in numbers.items()]
    )
    yield from became_ready(places)
    return [True] * len(jobs)
