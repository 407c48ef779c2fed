"""Enqueue jobs, all or none."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.backends.sql.job_writes import count_row
from holdfast.backends.sql.order_keys import NO_HEAD, bring_up
from holdfast.backends.sql.steps import Numbers, rows
from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob
from holdfast.model.turn import turn_of
from holdfast.store.steps import Steps, became_ready

_encode = msgspec.json.encode


def _lane(tx: Tx, queue: str, task: str) -> int:
    """Return the id of a lane; a missing lane is inserted in this transaction.

    Ids are not cached between calls: a joined transaction may be rolled back, and its new lanes with it.
    """
    names = {"queue": queue, "task": task}
    lane_id = tx.value("find_lane", names)
    if lane_id is None:
        tx.run("add_queue", {"queue": queue})
        tx.run("add_lane", names)
        lane_id = tx.value("find_lane", names)
    return int(lane_id)


def enqueue(jobs: Sequence[NewJob]) -> Steps[list[bool]]:
    """Insert jobs; return False for each whose id exists already."""
    created, line_ids = yield from direct(lambda tx: _enqueue(tx, jobs))()
    if line_ids:
        heads = yield from rows("order_key_heads", line_ids=Numbers(line_ids))
        yield from bring_up([line_id for line_id, head_seq in heads if head_seq == NO_HEAD])
    yield from became_ready()  # also for scheduled jobs: an idle worker sleeps until the next due time that it knows
    return created


def _enqueue(tx: Tx, jobs: Sequence[NewJob]) -> tuple[list[bool], Sequence[int]]:
    try:
        with tx.savepoint():
            line_ids = _insert(tx, jobs)
    except sqlite3.IntegrityError:
        new = _unknown(tx, jobs)
        return new, _insert(tx, [job for job, is_new in zip(jobs, new, strict=True) if is_new])
    return [True] * len(jobs), line_ids


def _unknown(tx: Tx, jobs: Sequence[NewJob]) -> list[bool]:
    """Return for each job whether it is new; an id that is repeated within the call is new once."""
    seen: set[str] = set()
    new: list[bool] = []
    for job in jobs:
        new.append(job.id not in seen and tx.value("known_seq", {"id": job.id}) is None)
        seen.add(job.id)
    return new


def _insert(tx: Tx, jobs: Sequence[NewJob]) -> Sequence[int]:
    """Insert jobs; return the ids of their order keys. All jobs with a key are blocked at first."""
    if all(job.delay is None and job.run_at is None and job.order_key is None for job in jobs):
        if jobs:
            _insert_ready(tx, jobs)
        return ()
    wanted = dict.fromkeys((job.queue, job.order_key) for job in jobs if job.order_key is not None)
    line_ids = {key: _order_key(tx, *key) for key in wanted}
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
            blocked.append((line_ids[job.queue, job.order_key], seq, seq))
        elif run_at <= tx.now:
            ready.append((lane_id, turn, seq))
        else:
            scheduled.append((run_at, seq))
    tx.many("insert_any_job", bodies)
    tx.many("insert_ready", ready)
    tx.many("insert_scheduled", scheduled)
    tx.many("insert_blocked", blocked)
    for lane, number in lanes.items():
        tx.run("count_events", count_row(tx.now, lane_ids[lane], {"enqueued": number}))
    return list(line_ids.values())


def _order_key(tx: Tx, queue: str, order_key: str) -> int:
    """Return the id of an order key; a missing key is inserted, without a head."""
    names = {"queue": queue, "order_key": order_key}
    line_id = tx.value("find_order_key", names)
    if line_id is None:
        tx.run("add_order_key", names)
        line_id = tx.value("find_order_key", names)
    return int(line_id)


def _body(tx: Tx, seq: int, job: NewJob, lane_id: int, turn: int) -> tuple[object, ...]:
    headers = _encode(job.headers).decode() if job.headers else None
    return (seq, job.id, lane_id, job.payload, headers, job.priority, job.max_attempts, job.timeout, tx.now, turn)


def _insert_ready(tx: Tx, jobs: Sequence[NewJob]) -> None:
    """Insert jobs that are due now: bodies first, from a generator so that no list of rows is built, then ready."""
    now = tx.now
    after = int(tx.value("take_seqs", {"count": len(jobs)})) - len(jobs)
    lanes = Counter([(job.queue, job.task) for job in jobs])
    lane_ids = {lane: _lane(tx, *lane) for lane in lanes}
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
    for lane, number in lanes.items():
        tx.run("count_events", count_row(now, lane_ids[lane], {"enqueued": number}))


def _run_at(job: NewJob, now: int) -> int:
    if job.run_at is not None:
        return to_micros(job.run_at)
    if job.delay is not None:
        return now + span_micros(job.delay)
    return now
