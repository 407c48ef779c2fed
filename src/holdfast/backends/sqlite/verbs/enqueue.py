"""Enqueue jobs, all or none: their bodies first, from which SQLite then fills the tables of their states."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from holdfast.backends.sql.job_writes import count_row
from holdfast.backends.sql.limit_keys import admit_new
from holdfast.backends.sql.order_keys import bring_up
from holdfast.backends.sqlite.connection import Tx, as_json
from holdfast.backends.sqlite.execute import CONSTANTS, direct
from holdfast.model.instants import span_micros
from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps, became_ready
from holdfast.store.values import Enqueued
from holdfast.store.verbs.enqueue import enqueue as enqueue_with_conditions

Waiting = tuple[Sequence[int], Sequence[int]]
_FILL_PLAIN = ("new_to_ready",)
_FILL = ("new_to_ready", "new_to_scheduled", "add_order_keys", "new_to_blocked")


def enqueue(jobs: Sequence[NewJob]) -> Steps[list[bool]]:
    """Insert jobs; return False for each whose id exists already."""
    created, (vacant, limited) = yield from direct(lambda tx: _enqueue(tx, jobs))()
    if vacant:
        yield from bring_up(vacant)
    if limited:
        yield from admit_new(limited)
    yield from became_ready()  # also for scheduled jobs: an idle worker sleeps until the next due time that it knows
    return created


def enqueue_unique(rows: JobRows, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
    """Insert jobs with unique keys, none of which may have a condition that `are_unique` excludes.

    In the usual case no job has taken one of the keys, and no id is known: then nothing has to be read.
    """
    if (yield from direct(lambda tx: _insert_free(tx, jobs))()):
        yield from became_ready()
        return [True] * len(jobs)
    return (yield from enqueue_with_conditions(rows, jobs, enqueue))


def _insert_free(tx: Tx, jobs: Sequence[NewJob]) -> bool:
    now = tx.now
    keys = [
        (
            job.task,
            unique.key,
            job.id,
            str(unique.scope),
            None if unique.period is None else now + span_micros(unique.period),
        )
        for job in jobs
        if (unique := unique_of(job)) is not None
    ]
    keys.sort(key=itemgetter(1))  # so that neighbours in the index are written together
    try:
        with tx.savepoint():
            tx.many("add_free_key", keys)
            _insert(tx, jobs)
    except sqlite3.IntegrityError:
        return False
    return True


def _enqueue(tx: Tx, jobs: Sequence[NewJob]) -> tuple[list[bool], Waiting]:
    try:
        with tx.savepoint():
            waiting = _insert(tx, jobs)
    except sqlite3.IntegrityError:
        new = _unknown(tx, jobs)
        return new, _insert(tx, [job for job, is_new in zip(jobs, new, strict=True) if is_new])
    return [True] * len(jobs), waiting


def _unknown(tx: Tx, jobs: Sequence[NewJob]) -> list[bool]:
    """Return for each job whether it is new; an id that is repeated within the call is new once."""
    seen: set[str] = set()
    new: list[bool] = []
    for job in jobs:
        new.append(job.id not in seen and tx.value("known_seq", {"id": job.id}) is None)
        seen.add(job.id)
    return new


def _insert(tx: Tx, jobs: Sequence[NewJob]) -> Waiting:
    """Insert jobs; return the order keys without a head, and the due jobs with limit keys.

    All jobs with an order key are blocked at first.
    """
    if not jobs:
        return (), ()
    now = tx.now
    after = int(tx.value("take_seqs", {"count": len(jobs)})) - len(jobs)
    lanes = Counter([(job.queue, job.task) for job in jobs])
    lane_ids = {lane: _lane(tx, *lane) for lane in lanes}
    turns = {priority: turn_of(now, priority) for priority in {job.priority for job in jobs}}
    waiting = [(seq, job) for seq, job in enumerate(jobs, after + 1) if job.conditions and parents_of(job)]
    are_plain = not waiting and all(
        job.delay is None and job.run_at is None and job.order_key is None and job.limit_key is None for job in jobs
    )

    def bodies(numbered: Iterable[tuple[int, NewJob]]) -> Iterator[tuple[object, ...]]:
        for seq, job in numbered:  # a generator, so that no list of rows is built
            unique = unique_of(job)
            yield (
                seq,
                job.id,
                lane_ids[job.queue, job.task],
                job.payload,
                as_json(job.headers) if job.headers else None,
                job.priority,
                job.max_attempts,
                job.timeout,
                now,
                turns[job.priority] if are_plain else turn_of(due_at(job, now), job.priority),
                job.order_key,
                job.limit_key,
                None if unique is None else unique.key,
                None if unique is None else str(unique.scope),  # sqlite3 binds a subclass of str in twice the time
            )

    seqs = {seq for seq, _ in waiting}
    numbered = enumerate(jobs, after + 1)
    tx.many("insert_job", bodies((seq, job) for seq, job in numbered if seq not in seqs) if seqs else bodies(numbered))
    new = {"after": after, "now": now, **CONSTANTS}
    for statement in _FILL_PLAIN if are_plain else _FILL:
        tx.run(statement, new)
    for lane, number in lanes.items():
        tx.run("count_events", count_row(now, lane_ids[lane], {"enqueued": number}))
    vacant = () if are_plain else sorted({key_id for (key_id,) in tx.rows("vacant_order_keys", new)})
    is_limited = any(job.limit_key is not None for job in jobs)
    limited = [seq for (seq,) in tx.rows("new_limited", new)] if is_limited else ()
    if waiting:  # after the others, which are moved to the tables of their states by the range of their seqs
        tx.many("insert_job", bodies(waiting))
        tx.run("new_to_waiting", {"seqs": as_json(sorted(seqs))})
    return vacant, limited


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
