"""Jobs and keys as they are now, in a transaction whose snapshot may be older: a caller's, or a repeatable read one.

There, a plain read shows an old state, and a locking read of a row that is missing locks the gap where others insert.
So what is committed is read by a session beside the transaction, compared with the transaction's own view, which shows
its own writes, and then the rows that were found are locked by their primary keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.mysql.error_map import DriverError, is_duplicate
from holdfast.backends.mysql.execute import Committed, numbered, views
from holdfast.backends.sql.job_columns import LEAVE, columns_of
from holdfast.backends.sql.order_keys import NO_HEAD, FirstBlocked, LockedKey
from holdfast.backends.sql.steps import Ask, Numbers, each, records, row, rows, run, together, value
from holdfast.errors import StoreUnavailable
from holdfast.model.conditions import UniqueScope
from holdfast.model.job import JobState
from holdfast.model.unique import Holder, Stage
from holdfast.store.job_rows import ENDED, JobRow
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import KeyName, TakenKeys, UniqueClaim, UniqueKey


class _KeysOfJob(NamedTuple):
    """The keys of a job (`keys_of_jobs`)."""

    seq: int
    queue: str
    lane_id: int
    order_key: str | None
    limit_key: str | None
    is_parent: bool


_LOOKS = 50  # attempts to lock what another transaction moves between the search and the lock
_STAGES = {JobState.RUNNING: Stage.RUNNING, **dict.fromkeys(ENDED, Stage.ENDED)}


def is_dated() -> Steps[bool]:
    """Return whether the snapshot may be older than what others have committed."""
    committed = yield Committed(())
    return committed is not None


def jobs_now(ids: Iterable[str]) -> Steps[dict[str, JobRow]]:
    """Return those of these jobs that exist, in the order of their seqs, without locks.

    The two views of a job differ because others have changed it since the snapshot, or this transaction has. A lock on
    the row that only one of them shows decides which is right; it is there in all but rare cases.
    """
    listed = sorted(set(ids))
    seen = yield from views(Ask("seen_jobs", {"ids": listed}, JobRow)) if listed else _nothing()
    own, committed = ({job.id: job for job in answer} for (answer,) in (seen[0], seen[-1]))
    found: dict[str, JobRow] = {}
    for job_id in own.keys() | committed.keys():
        mine, theirs = own.get(job_id), committed.get(job_id)
        if theirs is None:
            if mine is not None and (yield from run("has_job", seq=mine.seq)):
                found[job_id] = mine
            continue
        ended = next((job for job in (mine, theirs) if job is not None and job.state in ENDED), None)
        if mine is None or mine.state == theirs.state or ended is None:
            found[job_id] = theirs
        else:
            is_there = yield from run(f"hold_{ended.state}", seq=ended.seq)
            found[job_id] = ended if is_there else (theirs if ended is mine else mine)
    seqs = Numbers(job.seq for job_id, job in found.items() if job_id not in own and job.state not in ENDED)
    if seqs:
        ended_here = dict((yield from rows("ended_among", seqs=seqs)))  # by this transaction; its snapshot has no body
        found = {job_id: job._replace(state=ended_here.get(job.seq, job.state)) for job_id, job in found.items()}
    if found.keys() - committed.keys():  # the snapshot may be older than their lanes
        lanes = {job.lane_id for job in found.values()}
        (_, (names,)) = yield from views(Ask("lanes_by_id", {"lane_ids": Numbers(lanes)}))
        named = {lane_id: {"queue": queue, "task": task} for lane_id, queue, task in names}
        found = {job_id: job._replace(**named[job.lane_id]) for job_id, job in found.items()}
    return dict(sorted(found.items(), key=lambda item: item[1].seq))


def _nothing() -> Steps[list[list[list[JobRow]]]]:
    yield from ()
    return [[[]]]


def lock_jobs_now(ids: Sequence[str], *, only_waiting: bool = False) -> Steps[list[JobRow]]:
    """Lock those of these jobs that exist, by seq, each in the table in which it is now.

    `only_waiting`: leave out those that run or have ended, without waiting for a handler's transaction.
    """
    locked: set[tuple[str, str]] = set()
    for _ in range(_LOOKS):
        found = yield from jobs_now(ids)
        wanted = [job for job in found.values() if not only_waiting or job.state not in _STAGES]
        left = [job for job in wanted if (job.id, job.state) not in locked]
        if not left:
            return wanted
        for job in left:
            held = columns_of(job, LEAVE.get(JobState(job.state), ("seq",)))
            if (yield from run(f"hold_{job.state}", **held)):
                locked.add((job.id, job.state))
    raise StoreUnavailable("jobs change their states faster than they can be locked: try again")


def take_keys_now(claims: Sequence[UniqueClaim], *, again: bool) -> Steps[TakenKeys]:
    """See `UniqueRows.take_keys`. Keys are inserted by value, and those that exist are locked by their names."""
    first = {claim.name: claim for claim in reversed(claims)}
    ids = [claim.id for claim in claims]
    gone: set[KeyName] = set()
    given: set[KeyName] = set()
    held: dict[KeyName, UniqueKey] = {}
    for _ in range(_LOOKS):
        seen = yield from views(Ask("known_keys", {"claims": _named(first)}), Ask("known_ids", {"ids": ids}))
        there = {(task, key) for names, _ in seen for task, key in names} - gone - given
        known = {job_id for _, jobs in seen for (job_id,) in jobs}
        missing = [first[name] for name in sorted(first.keys() - there - given) if again or first[name].id not in known]
        try:
            yield from each(
                "new_unique_key", [{**claim._asdict(), "unique_scope": str(claim.unique_scope)} for claim in missing]
            )
        except DriverError as error:
            if not is_duplicate(error):
                raise
            gone.clear()
            continue
        given |= {claim.name for claim in missing}
        if len(given) == len(claims):
            return TakenKeys(0, {}, set(), all_given=True)
        names = sorted(there - held.keys())
        answers = yield from together(
            *(Ask("lock_unique_key", dict(zip(("task", "unique_key"), name, strict=True))) for name in names)
        )
        for name, answer in zip(names, answers, strict=True):
            if answer:
                job_id, scope, until_at, replaced_by = answer[0]
                held[name] = UniqueKey(*name, Holder(job_id, UniqueScope(scope), until_at, None, replaced_by))
            else:
                gone.add(name)
        if not gone & there:
            break
    else:
        raise StoreUnavailable("unique keys are added and removed faster than they can be locked: try again")
    for name in given:
        held[name] = UniqueKey(*name, Holder(first[name].id, first[name].unique_scope, None, None))
    now = yield from value("store_clock")
    jobs = yield from jobs_now([*ids, *(key.holder.id for key in held.values())])
    keys = {
        name: key._replace(holder=key.holder._replace(stage=_stage(jobs.get(key.holder.id))))
        for name, key in held.items()
    }
    return TakenKeys(now, keys, set(ids) & jobs.keys())


def _named(claims: Iterable[KeyName]) -> list[dict[str, str]]:
    return [{"task": task, "unique_key": unique_key} for task, unique_key in sorted(claims)]


def _stage(job: JobRow | None) -> Stage | None:
    return None if job is None else _STAGES.get(JobState(job.state), Stage.WAITING)


def take_order_keys_now(
    names: Sequence[tuple[str, str | None]],
) -> Steps[dict[tuple[str, str | None], tuple[int, int]]]:
    """Lock order keys, in this order, and add the missing ones; return the number and the head of each."""
    taken: dict[tuple[str, str | None], tuple[int, int]] = {}
    for name in names:
        place: dict[str, object] = {"queue": name[0], "order_key": name[1]}
        for _ in range(_LOOKS):
            found = yield from _lock_order_key(place)
            try:
                taken[name] = found or ((yield from numbered("new_order_key", [place])), NO_HEAD)
            except DriverError as error:
                if not is_duplicate(error):
                    raise
            else:
                break
    if len(taken) < len(names):
        raise StoreUnavailable("order keys are added and removed faster than they can be locked: try again")
    return taken


def _lock_order_key(name: Mapping[str, object]) -> Steps[tuple[int, int] | None]:
    """Lock an order key that exists, by its number; return that, and its head."""
    seen = yield from views(Ask("known_order_key", {"queue": name["queue"], "order_key": name["order_key"]}))
    key_ids = [key_id for (answer,) in reversed(seen) for (key_id,) in answer]
    return (yield from row("lock_order_key", key_id=key_ids[0])) if key_ids else None


def keys_now(seqs: Sequence[int]) -> Steps[list[dict[str, Any]]]:
    """Return the order keys and limit keys of these jobs."""
    seen = yield from views(Ask("keys_of_jobs", {"seqs": Numbers(seqs)}, _KeysOfJob))
    jobs: list[_KeysOfJob] = [job for (answer,) in seen for job in answer]
    parents = {job.seq for job in jobs if job.is_parent}
    found = {job.seq: job._replace(is_parent=job.seq in parents) for job in jobs}
    return [job._asdict() for job in found.values()]


def lock_order_keys_now(seqs: Sequence[int]) -> Steps[list[LockedKey]]:
    """Lock the order keys of these jobs; see `order_keys.settle`."""
    jobs = sorted((yield from keys_now(seqs)), key=lambda job: (job["queue"], job["order_key"] or ""))
    keys: list[LockedKey] = []
    for job in jobs:
        found = None if job["order_key"] is None else (yield from _lock_order_key(job))
        key_id, head = found or (None, NO_HEAD)
        keys.append(LockedKey(key_id, head, job["seq"], bool(job["is_parent"]), job["limit_key"] is not None))
    return keys


def first_of_key_now(key_id: int) -> Steps[list[FirstBlocked]]:
    """Lock the first waiting job of a locked order key, if there is one: see the statement `first_of_key`."""
    place = 0
    while True:
        seen = yield from views(Ask("next_of_key", {"key_id": key_id, "place": place}))
        waiting = sorted({(at, seq) for (answer,) in seen for at, seq in answer})
        if not waiting:
            return []
        place, seq = waiting[0]
        found = yield from records(FirstBlocked, "first_by_seq", seq=seq)
        if found:  # else it was cancelled, or has left the key in this transaction
            return found


def held_now(seqs: Sequence[int], fences: Sequence[int]) -> Steps[Numbers]:
    """Return those of these jobs whose leases exist: a lock on one that is gone would make every claim wait."""
    committed = yield Committed((Ask("held_seqs", {"seqs": Numbers(seqs), "fences": Numbers(fences)}),))
    return Numbers(seqs) if committed is None else Numbers(seq for (seq,) in committed[0])
