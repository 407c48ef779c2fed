"""Order keys: one job of each key, the head, is ready, scheduled or running; the others are blocked.

A verb that adds a job to an order key, or ends its head, first locks the key's row and then reads, in a statement with
a newer snapshot, which job is first. So two concurrent enqueues are serialized. An enqueue that is concurrent with the
end of the head either commits first, and its job is seen, or it waits and then sees the key as the end has left it. No
counter is kept, so the step may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.backends.sql.job_columns import COUNTERS, PUT, columns_of
from holdfast.backends.sql.steps import Numbers, each, records, run
from holdfast.model.job import JobState
from holdfast.model.turn import run_at_of
from holdfast.store.job_rows import JobRow
from holdfast.store.steps import Place, Steps

NO_HEAD = 0
BringUp = Callable[[Sequence[int]], Steps[Sequence[Place]]]
Settled = tuple[Sequence[Place], set[int], set[int]]


class LockedKey(NamedTuple):
    """A locked order key (`lock_order_keys`), and the seq of the job for which it was locked.

    `key_id` is None if the job has no key, or its key is gone. `is_parent`: the job has children. `is_limited`: it
    has a limit key.
    """

    key_id: int | None
    head_seq: int
    seq: int
    is_parent: bool
    is_limited: bool


class FirstBlocked(NamedTuple):
    """The first waiting job of an order key (`first_blocked`)."""

    key_id: int
    seq: int
    lane_id: int
    turn: int
    priority: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    now: int
    followed: bool
    retrying: bool

    @property
    def run_at(self) -> int:
        """When it is due."""
        return run_at_of(self.turn, self.priority)


def put_blocked(row: JobRow) -> Steps[None]:
    """Put an ended job at the end of its order key; the caller runs `settle` afterwards."""
    yield from run("add_order_key", queue=row.queue, order_key=row.order_key)
    ((key_id, *_),) = yield from records(LockedKey, "lock_order_keys", seqs=Numbers([row.seq]))
    yield from run("next_place")
    yield from run("put_blocked", key_id=key_id, **columns_of(row, ("seq", *COUNTERS, "followed")))


def settle(seqs: Sequence[int], bring_up: BringUp) -> Steps[Settled]:
    """Choose new heads for the order keys of these jobs, which were the heads or joined a key without a head.

    Returns the places of new heads that are ready; those of the seqs that have children: a transaction that has linked
    a child has marked its parent first, so it is seen by this statement, which follows the end of the parent; and those
    of the seqs that have limit keys.
    """
    return (yield from settle_locked((yield from records(LockedKey, "lock_order_keys", seqs=Numbers(seqs))), bring_up))


def settle_locked(keys: Sequence[LockedKey], bring_up: BringUp) -> Steps[Settled]:
    """Do so once the keys are locked."""
    vacant = {key.key_id for key in keys if key.key_id is not None and key.head_seq in {NO_HEAD, key.seq}}
    parents = {key.seq for key in keys if key.is_parent}
    limited = {key.seq for key in keys if key.is_limited}
    return (yield from bring_up(sorted(vacant))) if vacant else [], parents, limited


def bring_up(key_ids: Sequence[int]) -> Steps[Sequence[Place]]:
    """Make the first waiting job of each locked order key its head; delete a key without waiting jobs."""
    found = yield from records(FirstBlocked, "first_blocked", key_ids=Numbers(key_ids))
    return (yield from make_heads(key_ids, found))


def make_heads(key_ids: Sequence[int], found: Sequence[FirstBlocked]) -> Steps[Sequence[Place]]:
    """Make these jobs the heads of their keys; delete those of the keys that have none."""
    ready = [row for row in found if row.run_at <= row.now]
    later = [row for row in found if row.run_at > row.now]
    yield from each("leave_blocked", [{"seq": row.seq} for row in found])
    yield from each("set_head", [{"key_id": row.key_id, "seq": row.seq} for row in found])
    yield from each("put_ready", [columns_of(row, PUT[JobState.READY]) for row in ready])
    yield from each("put_scheduled", [columns_of(row, PUT[JobState.SCHEDULED]) for row in later])
    headed = {row.key_id for row in found}
    yield from each("drop_order_key", [{"key_id": key_id} for key_id in key_ids if key_id not in headed])
    return [(row.lane_id, row.turn, row.seq) for row in ready]
