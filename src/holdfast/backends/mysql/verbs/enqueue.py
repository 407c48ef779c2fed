"""Enqueue jobs, all or none.

A plain enqueue is one trip: the server's clock decides which of the new rows are ready, and the commit follows. Jobs
with order keys or parents, and those in a transaction of a handler or a caller, are placed here, after the clock was
read: there, rows are inserted by value only, because `insert … select` locks gaps under repeatable read.

An id that exists makes the insert fail as a duplicate, which undoes that statement alone; then the others are inserted.
Under repeatable read that would lock a gap, so in a transaction of a handler or a caller the ids are looked up first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.backends.mysql.error_map import DriverError, is_duplicate
from holdfast.backends.mysql.execute import final, numbered, views
from holdfast.backends.mysql.verbs.snapshots import take_order_keys_now
from holdfast.backends.sql.job_writes import count_row
from holdfast.backends.sql.limit_keys import admit_new
from holdfast.backends.sql.steps import Ask, Each, Rows, each, rows, together
from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.store.steps import Place, Steps, became_ready

CHUNK = 1_000
_CHUNK_BYTES = 400_000  # of payloads and headers, each byte of which may be escaped
_BESIDES = 300
NO_KEY = 0  # of the jobs that are blocked by their parents
LaneIds = Mapping[tuple[str, str], int]


def insert(jobs: Sequence[NewJob], lanes: LaneIds, *, is_alone: bool, is_whole: bool) -> Steps[list[bool]]:
    """Insert jobs; return False for each whose id exists already.

    `is_alone`: in a separate transaction; `is_whole`: nothing else is to be done in that.
    """
    distinct = {job.id: job for job in reversed(jobs)}
    ordered = [job for job in jobs if distinct.pop(job.id, None) is not None]
    if is_whole and all(_is_plain(job) for job in ordered):
        made = yield from _insert_plain(ordered, lanes)
    else:
        made = yield from _insert_placed(ordered, lanes, is_alone=is_alone)
    verdicts: list[bool] = []
    for job in jobs:
        verdicts.append(job.id in made)
        made.discard(job.id)
    return verdicts


def _is_plain(job: NewJob) -> bool:
    return job.order_key is None and job.limit_key is None and not parents_of(job)


def _unknown(chunk: list[NewJob], error: Exception) -> Steps[list[NewJob]]:
    """Return the jobs of a chunk that do not exist, after their insert has failed; raise other errors."""
    if not is_duplicate(error):
        raise error
    return (yield from _new(chunk))


def _new(chunk: list[NewJob]) -> Steps[list[NewJob]]:
    seen = yield from views(Ask("known_ids", {"ids": [job.id for job in chunk]}))
    known = {job_id for (answer,) in seen for (job_id,) in answer}
    return [job for job in chunk if job.id not in known]


def _chunks(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    chunk: list[NewJob] = []
    size = 0
    for job in jobs:
        length = _size(job.payload) + _BESIDES + sum(map(len, (job.headers or {}).values()))
        if chunk and (len(chunk) == CHUNK or size + length > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += length
    yield chunk


def _size(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


def _body(job: NewJob, lanes: LaneIds) -> dict[str, object]:
    return {
        "id": job.id,
        "lane_id": lanes[job.queue, job.task],
        "payload": job.payload,
        "headers": msgspec.json.encode(job.headers).decode() if job.headers else None,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "payload_bytes": _size(job.payload),
    }


def _insert_plain(jobs: Sequence[NewJob], lanes: LaneIds) -> Steps[set[str]]:
    chunks = list(_chunks(jobs))
    places: list[Place] = []
    made: set[str] = set()
    for number, whole in enumerate(chunks, 1):
        chunk = whole
        while chunk:
            run = final if number == len(chunks) else together
            try:
                found = yield from run(*_plain_asks(chunk, lanes))
            except DriverError as error:
                chunk = yield from _unknown(chunk, error)
            else:
                places += found[-2]
                made.update(job.id for job in chunk)
                break
    yield from became_ready(places)
    return made


def _plain_asks(chunk: Sequence[NewJob], lanes: LaneIds) -> list[Ask | Each]:
    bodies = [
        {
            **_body(job, lanes),
            "run_at": None if job.run_at is None else to_micros(job.run_at),
            "delay": 0 if job.delay is None else span_micros(job.delay),
        }
        for job in chunk
    ]
    count = {"count": len(chunk)}
    asks: list[Ask | Each] = [Each("insert_new", bodies), Ask("new_to_ready", count)]
    if any(job.run_at is not None or job.delay is not None for job in chunk):
        asks.append(Ask("new_to_scheduled", count))
    lots = Counter(lanes[job.queue, job.task] for job in chunk)
    counted = [{"lane_id": lane_id, "enqueued": many} for lane_id, many in lots.items()]
    return [*asks, Ask("new_places", count), Each("count_enqueued", counted)]


class _Placed:
    """The rows of new jobs in the tables of their states, and the new heads of order keys."""

    def __init__(self, keys: Mapping[tuple[str, str | None], tuple[int, int]], now: int, *, is_alone: bool) -> None:
        self._is_alone = is_alone
        self._keys = keys
        self._now = now
        self.ready: list[dict[str, Any]] = []
        self.scheduled: list[dict[str, Any]] = []
        self.blocked: list[dict[str, Any]] = []
        self.heads: dict[int, int] = {}
        self.limited: list[int] = []

    def add(self, job: NewJob, row: dict[str, Any], seq: int) -> None:
        """Place a job."""
        key_id, head = (NO_KEY, 0) if parents_of(job) else self._keys.get((job.queue, job.order_key), (None, 0))
        if key_id is not None and (key_id == NO_KEY or head or key_id in self.heads):
            self.blocked.append({"key_id": key_id, "seq": seq})
            return
        if job.limit_key is not None and row["run_at"] <= self._now:
            if self._is_alone:
                self.limited.append(seq)
            else:  # the transaction may stay open for long: `promote` does it, so that no key is locked meanwhile
                self.scheduled.append({**row, "seq": seq, "followed": False})
            return
        place = {**row, "seq": seq, "followed": key_id is not None}
        (self.ready if row["run_at"] <= self._now else self.scheduled).append(place)
        if key_id is not None:
            self.heads[key_id] = seq

    def write(self) -> Steps[None]:
        """Insert the rows; a key that was added for jobs that exist is removed."""
        yield from each("insert_ready", self.ready)
        yield from each("insert_scheduled", self.scheduled)
        yield from each("insert_blocked", self.blocked)
        yield from each("set_head", [{"key_id": key_id, "seq": seq} for key_id, seq in self.heads.items()])
        unused = [key_id for key_id, head in self._keys.values() if not head and key_id not in self.heads]
        yield from each("drop_order_key", [{"key_id": key_id} for key_id in unused])
        admitted = (yield from admit_new(self.limited)) if self.limited else []
        yield from became_ready([*((row["lane_id"], row["turn"], row["seq"]) for row in self.ready), *admitted])


def _insert_placed(jobs: Sequence[NewJob], lanes: LaneIds, *, is_alone: bool) -> Steps[set[str]]:
    keys = yield from _take_keys(jobs, is_alone=is_alone)
    ((now, step),) = yield from rows("clock_and_step")
    placed = _Placed(keys, now, is_alone=is_alone)
    made: list[NewJob] = []
    for whole in _chunks(jobs):
        chunk = whole if is_alone else (yield from _new(whole))
        while chunk:
            bodies = [_placed_body(job, lanes, now) for job in chunk]
            try:
                seq = yield from numbered("insert_jobs", bodies)
            except DriverError as error:
                chunk = yield from _unknown(chunk, error)
                continue
            for job, body in zip(chunk, bodies, strict=True):
                placed.add(job, body, seq)
                seq += step
            made += chunk
            break
    yield from placed.write()
    lots = Counter(lanes[job.queue, job.task] for job in made)
    yield from each("count_events", [count_row(now, lane_id, {"enqueued": many}) for lane_id, many in lots.items()])
    return {job.id for job in made}


def _placed_body(job: NewJob, lanes: LaneIds, now: int) -> dict[str, Any]:
    run_at = due_at(job, now)
    times = {"enqueued_at": now, "run_at": run_at, "turn": turn_of(run_at, job.priority)}
    unique = unique_of(job)
    scope = None if unique is None else str(unique.scope)
    keys = {"order_key": job.order_key, "limit_key": job.limit_key}
    names = {**keys, "unique_key": None if unique is None else unique.key, "unique_scope": scope}
    return {**_body(job, lanes), **times, **names}


def _take_keys(jobs: Sequence[NewJob], *, is_alone: bool) -> Steps[dict[tuple[str, str | None], tuple[int, int]]]:
    """Lock the order keys of jobs, before their seqs are given, so that seqs increase along each key."""
    names = sorted({(job.queue, job.order_key) for job in jobs if job.order_key is not None and not parents_of(job)})
    if not names:
        return {}
    if not is_alone:
        return (yield from take_order_keys_now(names))
    wanted: list[dict[str, object]] = [{"queue": queue, "order_key": order_key} for queue, order_key in names]
    yield from each("add_order_key", wanted)
    found: Rows = yield from together(*(Ask("take_order_key", name) for name in wanted))
    return {name: answer[0] for name, answer in zip(names, found, strict=True)}
