"""Retention: deletes the jobs of a state that ended first, over all lanes, and the names of workers that are gone.

Records name workers by numbers, which are never given twice. A worker that is silent and has no lease is *retired*:
its name no longer leads to its number, so that no further record gets that. The next prune notes the newest end of a
completed job: every record with the number ended at that time or before. When all completed jobs up to then are pruned,
the name is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.redis import job_lists
from holdfast.backends.redis.job_reads import JobReads
from holdfast.backends.redis.record import unpack_entry
from holdfast.backends.redis.scripts import DELETE
from holdfast.backends.redis.steps import Command, Group, Guard, ScriptCall, read, read_many, write
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.store.steps import Steps

AT_ONCE = 125  # jobs that one script changes, so that it takes a few milliseconds
_PAGE = 100
_NEW = 0  # when it is not yet noted which records may have the number


def prune(rows: JobReads, state: JobState, keep: timedelta, limit: int, completed_bytes: int | None) -> Steps[int]:
    """Delete at most `limit` jobs of a state that ended longer ago, or whose records take too many bytes."""
    now, _ = yield from read()
    pruned = yield from _erase_oldest(rows, state, now - span_micros(keep), limit)
    if state is not JobState.COMPLETED or completed_bytes is None:
        return pruned
    while pruned < limit:
        lanes = range(len(rows.directory.seen.lanes))
        sums: list[Command] = [("GET", "bytes"), ("HVALS", "gone")]
        _, (text, gone, *sizes) = yield from read_many([*sums, *(("LLEN", f"c{lane}") for lane in lanes)])
        size, number = int(text or 0), sum(sizes) - sum(map(int, gone))
        excess = number * (size - completed_bytes) // max(1, size)  # as many jobs as have that many bytes
        if size <= completed_bytes:
            break
        some = yield from _erase_oldest(rows, state, now, min(AT_ONCE, limit - pruned, max(1, excess)))
        if not some:
            break
        pruned += some
    return pruned


def _erase_oldest(rows: JobReads, state: JobState, latest: int, limit: int) -> Steps[int]:
    """Delete at most `limit` jobs that ended at `latest` at the latest, the oldest of all lanes first."""
    yield from rows.directory.known()
    letter = {JobState.COMPLETED: "c", JobState.FAILED: "f", JobState.CANCELLED: "k"}[state]
    passed: dict[str, int] = {}  # jobs of a lane that are still needed by others
    deleted = 0
    while deleted < limit:
        oldest = yield from job_lists.oldest(rows, letter, latest, passed, min(AT_ONCE, limit - deleted))
        if not oldest:
            break
        verdicts: bytes = yield ScriptCall(DELETE, [word for place in oldest for word in place])
        if not verdicts:
            break  # until a batch with conditions is inserted
        deleted += verdicts.count(b"1")
        for lane in {lane for lane, *_ in oldest}:
            some = [verdict for (each, *_), verdict in zip(oldest, verdicts, strict=True) if each == lane]
            passed[lane] = passed.get(lane, 0) + _left_of(bytes(some), letter, is_first=not passed.get(lane))
    return deleted


def _left_of(verdicts: bytes, letter: str, *, is_first: bool) -> int:
    """Return how many of the first members of a set are still in it after a deletion with these verdicts.

    Of a ledger those are removed that are gone, up to the first that is not. What is left to the next call, at the end,
    does not count.
    """
    seen = verdicts.rstrip(b"-")
    if letter != "c":
        return len(seen) - seen.count(b"1")
    if not is_first:
        return len(seen)
    return len(seen) - seen.index(b"2") if b"2" in seen else 0


# -- names of workers


def prune_names(rows: JobReads) -> Steps[None]:
    """Retire workers, and delete names that no record needs."""
    _, (names, living, retired) = yield from read(
        ("HLEN", "worker"), ("HLEN", "heartbeats"), ("ZRANGE", "retired", 0, _PAGE - 1, "WITHSCORES")
    )
    if retired:
        numbers = {int(number): int(float(until)) for number, until in zip(retired[::2], retired[1::2], strict=True)}
        yield from _forget(rows, numbers)
    cursor = b"" if names > living else b"0"
    while cursor != b"0":
        _, ((cursor, found),) = yield from read(("HSCAN", "worker", cursor or 0, "COUNT", _PAGE))
        yield from _retire(found[::2], found[1::2])


def _retire(names: Sequence[bytes], numbers: Sequence[bytes]) -> Steps[None]:
    groups: list[Group] = []
    for name, number in zip(names, numbers, strict=True):
        guards = [
            Guard("h", "heartbeats", name, ""),
            Guard("h", "worker", name, number),
            Guard("ZCARD", b"w" + number, "", 0),
        ]
        groups.append(Group(guards, [("HDEL", "worker", name), ("ZADD", "retired", _NEW, number)]))
    if groups:
        yield from write(groups)


def _forget(rows: JobReads, retired: dict[int, int]) -> Steps[None]:
    yield from rows.directory.refresh()
    lanes = range(len(rows.directory.seen.lanes))
    places: list[Command] = [("LINDEX", f"c{lane}", place) for place in (0, -1) for lane in lanes]
    now, found = yield from read_many(places)
    ends = [None if entry is None else unpack_entry(entry)[0] for entry in found]
    oldest = min((end for end in ends[: len(lanes)] if end is not None), default=None)
    newest = max((end for end in ends[len(lanes) :] if end is not None), default=now)
    commands: list[Command] = []
    for number, until in retired.items():
        if until == _NEW:
            commands.append(("ZADD", "retired", max(now, newest), number))
        elif oldest is None or oldest > until:
            commands += (("HDEL", "workers", number), ("ZREM", "retired", number))
    if commands:
        yield from write([Group([], commands)])
