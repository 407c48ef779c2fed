"""Lists of jobs, leases and attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.backends.redis.job_reads import ID, JobReads, StoredJob, ids_by_seq, result_of
from holdfast.backends.redis.job_writes import LETTERS
from holdfast.backends.redis.record import (
    ASKED,
    CODES,
    COMPLETED,
    ISOLATED,
    LEASED,
    RUNNING,
    STATES,
    bucket,
    id_of,
    seq_of,
    text_of,
    unpack_body,
    unpack_entry,
)
from holdfast.backends.redis.scripts import LEDGER_PAGE, SET_PAGE
from holdfast.backends.redis.steps import Command, ScriptCall, read, read_many
from holdfast.backends.redis.unique_keys import key_of
from holdfast.model.job import JobState
from holdfast.store.steps import Steps

_WINDOW = 500  # members of all lanes together that one look for the oldest jobs reads
_SCAN = 1000
_ALL = 2**53  # more than any seq


class StoredAttempt(msgspec.Struct, array_like=True):
    """An attempt as it is stored: the fields of `AttemptRecord`, and those of its failure."""

    attempt: int
    fence: int
    by_holder: bool
    worker_id: str
    started_at: int
    ended_at: int
    outcome: str
    failure: tuple[str, str, str, str] | None


decode_attempt = msgspec.msgpack.Decoder(StoredAttempt).decode


def _listed(job: StoredJob) -> tuple[Any, ...]:
    """Return the fields of `ListedJob`."""
    record, names = job.record, job.names
    leased = bool(record.flags & LEASED)
    has_ended = record.code >= COMPLETED
    return (
        text_of(job.id16),
        record.seq,
        names.queue,
        names.task,
        str(STATES[record.code]),
        record.priority,
        record.attempt,
        record.max_attempts,
        record.enqueued_at,
        record.turn,
        record.started_at if leased else None,
        record.finished_at if has_ended else None,
        names.worker_id if leased else None,
        record.extra.why if has_ended and record.code != COMPLETED else None,
        record.order_key,
        record.limit_key,
        None if record.code == COMPLETED else record.excused,
    )


def _job_view(rows: JobReads, id: str) -> Steps[list[Any]]:  # noqa: A002 - the name of the parameter
    _, found = yield from rows.seen([id_of(id)])
    return [_listed(job) for job in found]


def _job_body(rows: JobReads, seq: int) -> Steps[list[Any]]:
    answer: list[Any] = []
    for job in (yield from rows.by_seq([seq])):
        payload, headers, timeout = unpack_body((yield from rows.body(job.id16, job.text)))
        _, (unique,) = yield from read(("HGET", bucket(job.id16), job.id16 + b"u"))
        encoded = None if headers is None else msgspec.json.encode(headers)
        fence = job.record.fence if job.record.code == COMPLETED else None
        answer.append((payload, encoded, timeout, result_of(job), key_of(unique), fence))
    return answer


def _job_attempts(rows: JobReads, seq: int) -> Steps[list[Any]]:
    answer: list[Any] = []
    for job in (yield from rows.by_seq([seq])):
        _, (found,) = yield from read(("HVALS", b"a" + job.id16))
        for each in sorted(map(decode_attempt, found), key=lambda each: each.attempt):
            words = each.failure or (None, None, None, None)
            times = (each.started_at, each.ended_at)
            answer.append((each.attempt, each.fence, each.worker_id, *times, each.outcome, *words))
    return answer


def _job_states(rows: JobReads, ids: Sequence[str]) -> Steps[list[Any]]:
    _, found = yield from rows.seen([id_of(job_id) for job_id in ids])
    return [(text_of(job.id16), str(STATES[job.record.code]), result_of(job), job.record.seq) for job in found]


def _id_of(rows: JobReads, seq: int) -> Steps[list[Any]]:
    return [(text_of(job.id16),) for job in (yield from rows.by_seq([seq]))]


def _find_ids(rows: JobReads, first: str, last: str, limit: int) -> Steps[list[Any]]:  # noqa: ARG001
    low, high = UUID(first).bytes, UUID(last).bytes
    found: list[bytes] = []
    after = b"[" + low[:4]
    while len(found) < limit:
        _, (names,) = yield from read(("ZRANGE", "buckets", after, b"[" + high[:4], "BYLEX", "LIMIT", 0, 1))
        if not names:
            break
        inside: set[bytes] = set()
        cursor = b"0"
        while True:
            _, ((cursor, fields),) = yield from read(("HSCAN", b"j" + names[0], cursor, "COUNT", _SCAN))
            inside.update(field for field in fields[::2] if len(field) == len(low) and low <= field <= high)
            if cursor == b"0":
                break
        found += sorted(inside)
        after = b"(" + names[0]
    return [(text_of(id16),) for id16 in found[:limit]]


# -- pages of one state


class _ListOrder(NamedTuple):
    """How the jobs of one state are ordered: by score, then seq, up or down; after a place."""

    score: int
    seq: int
    down: bool


def _page(
    rows: JobReads, state: JobState, queue: str | None, task: str | None, limit: int, way: _ListOrder
) -> Steps[list[Any]]:
    """Return one page of the jobs of a state, merged over the lanes."""
    yield from rows.directory.refresh()
    lanes = [
        number
        for number, lane in enumerate(rows.directory.seen.lanes)
        if queue in {None, lane[0]} and task in {None, lane[1]}
    ]
    letters = {JobState.SCHEDULED: "st", JobState.BLOCKED: "bq"}.get(state) or LETTERS[CODES[state]]
    places: list[tuple[float, int, bytes]] = []
    look = _from_ledger if state is JobState.COMPLETED else _from_set
    for name in (f"{letter}{lane}" for lane in lanes for letter in letters):
        places += yield from look(name, limit, way)
    places.sort(reverse=way.down)
    jobs = yield from rows.by_members(name for _, _, name in places[:limit])
    # A job that has moved on since is left out.
    return [_listed(job) for job in jobs.values() if STATES[job.record.code] is state]


def _from_set(name: str, limit: int, way: _ListOrder) -> Steps[list[tuple[float, int, bytes]]]:
    """Return the members after a place; those with the score of the place are compared by seq."""
    found: list[bytes] = yield ScriptCall(SET_PAGE, [name, way.score, way.seq, limit, int(way.down)])
    return [(float(score), seq_of(each), each) for each, score in zip(found[::2], found[1::2], strict=True)]


def _from_ledger(name: str, limit: int, way: _ListOrder) -> Steps[list[tuple[float, int, bytes]]]:
    """Return the completed jobs of a lane before a place, downwards."""
    found: list[tuple[float, int, bytes]] = []
    last, before = way.score, way.seq
    while True:
        go_on, *entries = yield ScriptCall(LEDGER_PAGE, [name, last, before, limit - len(found)])
        found += [(float(end), seq_of(each), each) for end, each in map(unpack_entry, entries)]
        if not go_on or len(found) >= limit:
            return sorted(found, reverse=True)[:limit]
        last, before = int(go_on), _ALL


def _upwards(state: JobState) -> Callable[..., Steps[list[Any]]]:
    def listing(
        rows: JobReads, queue: str | None, task: str | None, limit: int, after_turn: int = 0, after_seq: int = 0
    ) -> Steps[list[Any]]:
        place = _ListOrder(after_seq, after_seq, down=False) if state is JobState.BLOCKED else None
        way = place or _ListOrder(after_turn, after_seq, down=False)
        return (yield from _page(rows, state, queue, task, limit, way))

    return listing


def _downwards(state: JobState) -> Callable[..., Steps[list[Any]]]:
    def listing(
        rows: JobReads, queue: str | None, task: str | None, limit: int, before: int, before_end: int
    ) -> Steps[list[Any]]:
        score = 0 if state is JobState.RUNNING else before_end  # running jobs are ordered by seq alone
        return (yield from _page(rows, state, queue, task, limit, _ListOrder(score, before, down=True)))

    return listing


def oldest(
    rows: JobReads, letter: str, latest: int, passed: Mapping[str, int], limit: int
) -> Steps[list[tuple[str, bytes, bytes]]]:
    """Return the set, member and score of the jobs that ended first in a state, over all lanes.

    Those of a ledger may be gone.
    """
    lanes = [f"{letter}{number}" for number in range(len(rows.directory.seen.lanes))]
    window = max(2, min(limit, _WINDOW // max(1, len(lanes))))
    commands: list[Command] = []
    for lane in lanes:
        start = passed.get(lane, 0)
        from_set: Command = ("ZRANGE", lane, "-inf", latest, "BYSCORE", "LIMIT", start, window, "WITHSCORES")
        commands.append(("LRANGE", lane, start, start + window - 1) if letter == "c" else from_set)
    _, found = yield from read_many(commands)
    if letter == "c":
        seqs = [int.from_bytes(entry[7:], "big") for entries in found for entry in entries]
        ids = iter((yield from ids_by_seq(seqs)))
        found = [_pairs([entry + next(ids).ljust(ID, b"\0") for entry in entries], latest) for entries in found]
    places: list[tuple[float, int, tuple[str, bytes, bytes]]] = []
    bound = float("inf")  # behind it, a lane may have jobs that were not read
    for lane, pairs in zip(lanes, found, strict=True):
        for name, score in zip(pairs[::2], pairs[1::2], strict=True):
            places.append((float(score), seq_of(name), (lane, name, score)))
        if len(pairs) == 2 * window:
            bound = min(bound, float(pairs[-1]))
    places.sort()
    return [place for score, _, place in places if score <= bound][:limit]


def _pairs(entries: Sequence[bytes], latest: int) -> list[bytes]:
    """Return the members and scores of entries of a ledger with their ids, as a set would."""
    places = [(end, each) for end, each in map(unpack_entry, entries) if end <= latest]
    return [word for end, each in places for word in (each, b"%d" % end)]


# -- leases


def _leases(rows: JobReads, limit: int, seq: int | None, expired_only: bool) -> Steps[list[Any]]:
    if seq is None:
        now, (found,) = yield from read(("ZRANGE", "leases", 0, limit - 1, "WITHSCORES"))
        pairs = [(name, float(end)) for name, end in zip(found[::2], found[1::2], strict=True)]
    else:
        jobs = yield from rows.by_seq([seq])
        names = [job.member for job in jobs]
        now, ends = yield from read(*(("ZSCORE", "leases", name) for name in names))
        pairs = [(name, float(end)) for name, end in zip(names, ends, strict=True) if end is not None]
    if expired_only:
        pairs = [pair for pair in pairs if pair[1] <= now]
    until = dict(sorted(pairs, key=lambda pair: (pair[1], pair[0])))
    held = yield from rows.by_members(until)
    return [_lease(job, int(until[name]) - now) for name, job in held.items() if job.record.code == RUNNING]


def _lease(job: StoredJob, expires_in: int) -> tuple[Any, ...]:
    record, names = job.record, job.names
    flags = record.flags
    held = (text_of(job.id16), record.seq, record.fence, names.queue, names.task, names.worker_id, record.attempt)
    facts = (bool(flags & ISOLATED), bool(flags & ASKED), record.extra.percent, record.extra.note)
    return (*held, record.started_at, expires_in, *facts)


def _any_expired(rows: JobReads, longest: int | None) -> Steps[list[Any]]:
    found = yield from rows.expired(longest, 1)
    return [(bool(found.rows), found.now)]


def _cancel_asked(rows: JobReads, worker_id: str) -> Steps[list[Any]]:
    _, (number,) = yield from read(("HGET", "worker", worker_id))
    if number is None:
        return []
    _, (names,) = yield from read(("ZRANGE", "asked", number, number, "BYSCORE"))
    return (yield from _held(rows, names, 0))


def _unacknowledged(rows: JobReads, worker_id: str, after: int) -> Steps[list[Any]]:
    _, (number,) = yield from read(("HGET", "worker", worker_id))
    if number is None:
        return []
    _, (names,) = yield from read(("ZRANGE", f"w{number.decode()}", f"({after}", "+inf", "BYSCORE"))
    return (yield from _held(rows, names, after))


def _held(rows: JobReads, names: Sequence[bytes], after: int) -> Steps[list[Any]]:
    if not names:
        return []
    _, found = yield from rows.seen([name[8:] for name in names])
    held = sorted((job.record.seq, job) for job in found if job.record.code == RUNNING and job.record.fence > after)
    return [(text_of(job.id16), seq, job.record.fence) for seq, job in held]


LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {
    "job_view": _job_view,
    "job_body": _job_body,
    "job_attempts": _job_attempts,
    "job_states": _job_states,
    "id_of": _id_of,
    "find_ids": _find_ids,
    "leases": _leases,
    "any_expired": _any_expired,
    "cancel_asked": _cancel_asked,
    "unacknowledged_leases": _unacknowledged,
    **{f"list_{state}": _upwards(state) for state in (JobState.READY, JobState.SCHEDULED, JobState.BLOCKED)},
    **{f"list_{state}": _downwards(state) for state in JobState if state not in {"ready", "scheduled", "blocked"}},
}
