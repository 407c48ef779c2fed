"""Limit keys: of the jobs of a key, as many are ready or running as its limit allows; the others are blocked.

As with order keys, a verb that adds a job to a key, or frees one of its slots, first locks the row of the key, and then
looks, in a statement with a newer snapshot. The admitted jobs are counted by their rows in `ready` and `running`; the
rows of `limit_slot` only find them. So a step may be repeated, and nothing can be freed twice or never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.sql.job_columns import COUNTERS, LEAVE, PUT, columns_of
from holdfast.backends.sql.order_keys import FirstBlocked
from holdfast.backends.sql.steps import Ask, Numbers, each, records, rows, run, together
from holdfast.model.job import JobState
from holdfast.model.key_limits import KeyUse
from holdfast.model.limits import LimitUse
from holdfast.store.job_rows import JobRow
from holdfast.store.steps import Place, Steps, became_ready

_LOOKS = 2  # a key may be dropped between the two statements that add and lock it
_LIMITED = ("key_id", "turn", "seq", *COUNTERS, "followed")  # the columns of `put_limited`


class KeyOfJob(NamedTuple):
    """The locked limit key of a job (`lock_limit_keys`)."""

    key_id: int
    seq: int


class LimitedKey(NamedTuple):
    """A locked key and what it allows (`limited_keys`); `counted` jobs are admitted and need no look.

    `unrated` of them are ready, but were admitted before the key had a rate.
    """

    key_id: int
    rate_at: int
    max_running: int | None
    rate_jobs: int | None
    rate_span: int | None
    rate_burst: int | None
    counted: int
    unrated: int
    now: int


class OpenSlot(NamedTuple):
    """A slot whose start is not counted, or whose job has left it (`open_slots`)."""

    key_id: int
    seq: int
    admitted_at: int | None
    is_ready: bool
    is_running: bool
    started_at: int | None

    @property
    def has_started(self) -> bool:
        """Whether the job was claimed since it was admitted, and that is not counted yet."""
        return self.admitted_at is not None and self.started_at is not None


class Admitted(NamedTuple):
    """A ready job over the limit of its key (`last_admitted`)."""

    key_id: int
    seq: int
    lane_id: int
    turn: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    followed: bool


def admit(seqs: Sequence[int], joining: Sequence[JobRow]) -> Steps[list[Place]]:
    """Settle the limit keys of these jobs: of those that have left a slot, and of those that wait for one from now on.

    Returns the places of jobs that are ready now.
    """
    numbers = Numbers(sorted(seqs))
    if joining:
        yield from run("add_limit_keys", seqs=numbers)
    keys = {row.seq: row.key_id for row in (yield from records(KeyOfJob, "lock_limit_keys", seqs=numbers))}
    waiting = [{**columns_of(row, _LIMITED[1:]), "key_id": keys[row.seq]} for row in joining]
    yield from each("put_limited", waiting)
    return (yield from fill(sorted(set(keys.values()))))


def admit_new(seqs: Sequence[int]) -> Steps[list[Place]]:
    """Put new jobs into their keys, and settle these."""
    numbers = Numbers(sorted(seqs))
    yield from run("add_limit_keys", seqs=numbers)
    keys = yield from records(KeyOfJob, "lock_limit_keys", seqs=numbers)
    yield from run("join_limit_keys", seqs=numbers)
    return (yield from fill(sorted({row.key_id for row in keys})))


def admit_due(due: Sequence[dict[str, object]]) -> Steps[int]:
    """Put due jobs, locked in scheduled, into their keys; return how many.

    Those whose key another session has locked stay.
    """
    keys: dict[int, int] = {}
    left = Numbers(sorted(int(str(job["seq"])) for job in due))
    for _ in range(_LOOKS):
        yield from run("add_missing_limit_keys", seqs=left)
        keys |= {row.seq: row.key_id for row in (yield from records(KeyOfJob, "free_limit_keys", seqs=left))}
        left = Numbers(seq for seq in left if seq not in keys)
        if not left:
            break
    moved = [job for job in due if job["seq"] in keys]
    yield from each("leave_scheduled", [{"run_at": job["run_at"], "seq": job["seq"]} for job in moved])
    yield from each(
        "put_limited",
        [{**{name: job[name] for name in _LIMITED[1:]}, "key_id": keys[int(str(job["seq"]))]} for job in moved],
    )
    yield from became_ready((yield from fill(sorted(set(keys.values())))))
    return len(moved)


def fill(key_ids: Sequence[int]) -> Steps[list[Place]]:
    """Admit waiting jobs of locked keys while their limits have room; return the places of those that are ready now."""
    if not key_ids:
        return []
    wanted = {"key_ids": Numbers(key_ids)}
    known, open_slots = yield from together(
        Ask("limited_keys", wanted, LimitedKey), Ask("open_slots", wanted, OpenSlot)
    )
    slots: defaultdict[int, list[OpenSlot]] = defaultdict(list)
    for slot in open_slots:
        slots[slot.key_id].append(slot)
    keys = {key.key_id: _use(key, slots[key.key_id]) for key in known}
    yield from _forget(open_slots, {key.key_id for key in known if key.rate_jobs is not None})
    yield from _send_back(keys)
    ready = yield from _admit_first(keys)
    waiting = {key_id for (key_id,) in (yield from rows("still_waiting", **wanted))}
    idle = [key_id for key_id, key in keys.items() if key.is_idle and key_id not in waiting]
    kept = [
        {"key_id": key_id, "rate_at": key.use.rate_at, "wake_at": key.wake_at(is_waiting=key_id in waiting)}
        for key_id, key in keys.items()
        if key_id not in idle
    ]
    yield from each("set_limit_key", kept)
    yield from each("drop_limit_key", [{"key_id": key_id} for key_id in idle])
    if any(key["wake_at"] is not None for key in kept):
        yield from became_ready()  # an idle worker sleeps until the next due time that it knows
    return ready


def _use(key: LimitedKey, slots: Sequence[OpenSlot]) -> KeyUse:
    admitted = key.counted + sum(slot.is_ready or slot.is_running for slot in slots)
    limit = (key.max_running, key.rate_jobs, key.rate_span, key.rate_burst)
    use = LimitUse("", "", *limit, rate_at=key.rate_at, running=admitted, now=key.now)
    pending = [slot.admitted_at for slot in slots if slot.is_ready and slot.admitted_at is not None]
    starts = [slot.started_at for slot in slots if slot.has_started and slot.started_at is not None]
    return KeyUse(use, pending, starts, key.unrated).counted()


def _forget(slots: Sequence[OpenSlot], rated: set[int]) -> Steps[None]:
    """Delete slots whose jobs have left them, and mark those whose start is counted."""
    left = [slot for slot in slots if not slot.is_ready and not slot.is_running]
    counted = [slot for slot in slots if slot.is_running and slot.has_started and slot.key_id in rated]
    yield from each("drop_slot", [{"key_id": slot.key_id, "seq": slot.seq} for slot in left])
    yield from each("count_slot", [{"key_id": slot.key_id, "seq": slot.seq} for slot in counted])


def _send_back(keys: dict[int, KeyUse]) -> Steps[None]:
    """Let ready jobs over a lowered limit wait again; running ones are not interrupted."""
    excess = {key_id: key.excess for key_id, key in keys.items() if key.excess}
    if not excess:
        return
    numbers = {"key_ids": Numbers(excess), "excess": Numbers(excess.values())}
    found = [job for job in (yield from records(Admitted, "last_admitted", **numbers)) if _takes(excess, job.key_id)]
    yield from each("leave_ready", [columns_of(job, LEAVE[JobState.READY]) for job in found])
    yield from each("put_limited", [columns_of(job, _LIMITED) for job in found])
    yield from each("drop_slot", [columns_of(job, ("key_id", "seq")) for job in found])
    for key_id, number in Counter(job.key_id for job in found).items():
        keys[key_id] = keys[key_id].sent_back(number)


def _takes(numbers: dict[int, int], key_id: int) -> bool:
    """Count one down; return whether there was one: a dialect may return more rows than asked for."""
    numbers[key_id] -= 1
    return numbers[key_id] >= 0


def _admit_first(keys: dict[int, KeyUse]) -> Steps[list[Place]]:
    rooms = {key_id: key.room for key_id, key in keys.items() if key.room}
    if not rooms:
        return []
    numbers = {"key_ids": Numbers(rooms), "rooms": Numbers(rooms.values()), "most": max(rooms.values())}
    found = [row for row in (yield from records(FirstBlocked, "first_limited", **numbers)) if _takes(rooms, row.key_id)]
    if not found:
        return []
    ready = [row for row in found if row.run_at <= row.now]
    later = [row for row in found if row.run_at > row.now]  # replaced while it waited
    slots: list[dict[str, object]] = []
    for row in ready:
        key = keys[row.key_id]
        slots.append(
            {
                "key_id": row.key_id,
                "seq": row.seq,
                "attempt": row.attempt,
                "admitted_at": None if key.use.rate_jobs is None else row.now,
            }
        )
        keys[row.key_id] = key.admitted(1)
    yield from each("leave_blocked", [{"seq": row.seq} for row in found])
    yield from each("put_ready", [columns_of(row, PUT[JobState.READY]) for row in ready])
    yield from each("put_scheduled", [columns_of(row, PUT[JobState.SCHEDULED]) for row in later])
    yield from each("add_slot", slots)
    return [(row.lane_id, row.turn, row.seq) for row in ready]
