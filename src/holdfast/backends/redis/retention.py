"""Retention: deletes the jobs of a state that ended first, over all lanes."""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.redis import job_lists
from holdfast.backends.redis.job_reads import JobReads
from holdfast.backends.redis.scripts import DELETE
from holdfast.backends.redis.steps import ScriptCall, read
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.store.steps import Steps

AT_ONCE = 125  # jobs that one script changes, so that it takes a few milliseconds


def prune(rows: JobReads, state: JobState, keep: timedelta, limit: int, completed_bytes: int | None) -> Steps[int]:
    """Delete at most `limit` jobs of a state that ended longer ago, or whose records take too many bytes."""
    now, _ = yield from read()
    pruned = yield from _erase_oldest(rows, state, now - span_micros(keep), limit)
    if state is not JobState.COMPLETED or completed_bytes is None:
        return pruned
    while pruned < limit:
        lanes = range(len(rows.directory.lanes))
        _, (text, gone, *sizes) = yield from read(
            ("GET", "bytes"), ("HVALS", "gone"), *(("LLEN", f"c{lane}") for lane in lanes)
        )
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
