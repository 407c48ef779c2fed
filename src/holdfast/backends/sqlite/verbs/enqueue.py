"""Put jobs in, all or none."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.counting import count
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob
from holdfast.model.turn import turn_of

_encode = msgspec.json.encode


def _lane(tx: Tx, queue: str, task: str) -> int:
    """Return the id of a lane; one that is new is written in this transaction.

    Ids are not remembered from call to call: a transaction that was joined may be rolled back, its lanes with it.
    """
    names = {"queue": queue, "task": task}
    lane_id = tx.value("find_lane", names)
    if lane_id is None:
        tx.run("add_queue", {"queue": queue})
        tx.run("add_lane", names)
        lane_id = tx.value("find_lane", names)
    return int(lane_id)


def enqueue(tx: Tx, jobs: Sequence[NewJob]) -> list[bool]:
    """Insert jobs; False for each whose id is known."""
    try:
        with tx.savepoint():
            _insert(tx, jobs)
    except sqlite3.IntegrityError:
        new = _unknown(tx, jobs)
        _insert(tx, [job for job, is_new in zip(jobs, new, strict=True) if is_new])
        return new
    return [True] * len(jobs)


def _unknown(tx: Tx, jobs: Sequence[NewJob]) -> list[bool]:
    """Tell which jobs are new, an id repeated within the call being new only once."""
    seen: set[str] = set()
    new: list[bool] = []
    for job in jobs:
        new.append(job.id not in seen and tx.value("known_seq", {"id": job.id}) is None)
        seen.add(job.id)
    return new


def _insert(tx: Tx, jobs: Sequence[NewJob]) -> None:
    if not jobs:
        return
    now = tx.now
    if all(job.delay is None and job.run_at is None for job in jobs):
        _insert_ready(tx, jobs)
        return
    seq = int(tx.value("take_seqs", {"count": len(jobs)})) - len(jobs)
    lane_ids: dict[tuple[str, str], int] = {}
    bodies: list[tuple[object, ...]] = []
    ready: list[tuple[int, int, int]] = []
    scheduled: list[tuple[int, int]] = []
    for job in jobs:
        seq += 1
        line = (job.queue, job.task)
        lane_id = lane_ids.get(line)
        if lane_id is None:
            lane_id = lane_ids[line] = _lane(tx, job.queue, job.task)
        run_at = _run_at(job, now)
        turn = turn_of(run_at, job.priority)
        headers = _encode(job.headers).decode() if job.headers else None
        bodies.append(
            (seq, job.id, lane_id, job.payload, headers, job.priority, job.max_attempts, job.timeout, now, turn)
        )
        if run_at <= now:
            ready.append((lane_id, turn, seq))
        else:
            scheduled.append((run_at, seq))
    tx.many("insert_job", bodies)
    if ready:
        tx.many("insert_ready", ready)
    if scheduled:
        tx.many("insert_scheduled", scheduled)
    for lane, number in Counter(body[2] for body in bodies).items():
        count(tx, lane, enqueued=number)


def _insert_ready(tx: Tx, jobs: Sequence[NewJob]) -> None:
    """Insert jobs that are due now: the bodies from a generator, so that no list of rows is built; then ready."""
    now = tx.now
    after = int(tx.value("take_seqs", {"count": len(jobs)})) - len(jobs)
    lines = Counter([(job.queue, job.task) for job in jobs])
    lane_ids = {line: _lane(tx, *line) for line in lines}
    turns = {priority: turn_of(now, priority) for priority in {job.priority for job in jobs}}
    bodies = (
        (
            seq,
            job.id,
            lane_ids[job.queue, job.task],
            job.payload,
            _encode(job.headers).decode() if job.headers else None,
            job.priority,
            job.max_attempts,
            job.timeout,
            now,
            turns[job.priority],
        )
        for seq, job in enumerate(jobs, after + 1)
    )
    tx.many("insert_job", bodies)
    tx.run("new_to_ready", {"after": after})
    for line, number in lines.items():
        count(tx, lane_ids[line], enqueued=number)


def _run_at(job: NewJob, now: int) -> int:
    if job.run_at is not None:
        return to_micros(job.run_at)
    if job.delay is not None:
        return now + span_micros(job.delay)
    return now
