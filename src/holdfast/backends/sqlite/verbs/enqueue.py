"""Put jobs in, all or none."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.counting import count
from holdfast.backends.sqlite.verbs.lines import lines_for, settle
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
    if all(job.delay is None and job.run_at is None and job.order_key is None for job in jobs):
        if jobs:
            _insert_ready(tx, jobs)
        return
    wanted = dict.fromkeys((job.queue, job.order_key) for job in jobs if job.order_key is not None)
    lines = lines_for(tx, wanted)
    lanes = Counter([(job.queue, job.task) for job in jobs])
    lane_ids = {lane: _lane(tx, *lane) for lane in lanes}
    after = int(tx.value("take_seqs", {"count": len(jobs)})) - len(jobs)
    bodies: list[tuple[object, ...]] = []
    ready: list[tuple[int, int, int]] = []
    scheduled: list[tuple[int, int]] = []
    blocked: list[tuple[int, int, int]] = []
    for seq, job in enumerate(jobs, after + 1):
        lane_id = lane_ids[job.queue, job.task]
        run_at = _run_at(job, tx.now)
        turn = turn_of(run_at, job.priority)
        bodies.append((*_body(tx, seq, job, lane_id, turn), job.order_key))
        if job.order_key is not None:
            blocked.append((lines[job.queue, job.order_key], seq, seq))
        elif run_at <= tx.now:
            ready.append((lane_id, turn, seq))
        else:
            scheduled.append((run_at, seq))
    tx.many("insert_any_job", bodies)
    tx.many("insert_ready", ready)
    tx.many("insert_scheduled", scheduled)
    tx.many("insert_blocked", blocked)
    settle(tx, wanted)
    for lane, number in lanes.items():
        count(tx, lane_ids[lane], enqueued=number)


def _body(tx: Tx, seq: int, job: NewJob, lane_id: int, turn: int) -> tuple[object, ...]:
    headers = _encode(job.headers).decode() if job.headers else None
    return (seq, job.id, lane_id, job.payload, headers, job.priority, job.max_attempts, job.timeout, tx.now, turn)


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
