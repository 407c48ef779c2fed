"""Limit keys on Redis: which jobs of a key are admitted is decided here, by `model.key_limits`.

A script by which a job joins a key, or leaves a slot, marks the key in the same step: it changes its version, and adds
it to `wakes`. Then the verb looks at the marked keys, and writes what it has decided if the version, the limit and the
jobs to be moved are still as they were read. If the process stops before, `promote` finds the mark.

```text
   o<key_set>   the jobs that wait, by turn     m<key_set>   the admitted jobs, by turn
   l<key_set>   v: the version    r: `rate_at`    n: all ready jobs of the key were admitted under its rate
             for an admitted job whose start is not counted: since when it is; for one that has left: s and its start
   wakes     when to look at each key        y<lane>   all keys of a lane
```
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.backends.redis.job_reads import JobReads, StoredJob
from holdfast.backends.redis.lane_directory import Place, decode_place
from holdfast.backends.redis.record import LIMITED, READY, RUNNING, SCHEDULED, bucket, changed, id_of, text_of
from holdfast.backends.redis.steps import Command, Group, Guard, read, write
from holdfast.model.key_limits import KeyUse
from holdfast.model.limits import LimitUse
from holdfast.model.turn import run_at_of
from holdfast.store.steps import Steps, became_ready

_KEYS = 50  # that one step looks at
_MOVED = 125  # jobs that one script moves
_FIRST = 10  # waiting jobs that are read with the key
_LOOKS = 50  # at a key that others change
_PAGE = 500
MARKED: Command = ("ZRANGE", "wakes", 0, 0, "BYSCORE", "LIMIT", 0, _KEYS)
"""Reads keys that were marked and not yet looked at."""


def fill(rows: JobReads, key_sets: Sequence[bytes]) -> Steps[None]:
    """Admit jobs of those keys that are due to be looked at; those that others change too often are for `promote`."""
    left = list(dict.fromkeys(key_sets))
    for _ in range(_LOOKS + len(left) // _KEYS):
        if not left:
            return
        some, left = left[:_KEYS], left[_KEYS:]
        left += yield from _look(rows, some)


def fill_due(rows: JobReads, limit: int) -> Steps[int]:
    """Look at no more than `limit` keys that are due; return how many."""
    now, (found,) = yield from read(("ZRANGE", "wakes", 0, limit - 1, "WITHSCORES"))
    due = [key_set for key_set, at in zip(found[::2], found[1::2], strict=True) if float(at) <= now]
    yield from fill(rows, due)
    return len(due)


def mark_all(rows: JobReads, task: str) -> Steps[None]:
    """Mark all keys of a task whose limit has changed."""
    yield from rows.directory.refresh()
    for number, lane in enumerate(rows.directory.seen.lanes):
        after: bytes = b"-"
        while lane[1] == task:
            _, (key_sets,) = yield from read(("ZRANGE", f"y{number}", after, "+", "BYLEX", "LIMIT", 0, _PAGE))
            if not key_sets:
                break
            yield from write([Group([], [("MARK", key_set) for key_set in key_sets])])
            after = b"(" + key_sets[-1]


class _Key(NamedTuple):
    """A key as it was read; `limit` is what is set for its task."""

    key_set: bytes
    task: str
    limit: bytes
    fields: dict[bytes, bytes]
    admitted: int
    waiting: int
    first: list[bytes]
    now: int

    @property
    def place(self) -> Place:
        return decode_place(self.limit)

    def slots(self, *, left: bool) -> dict[bytes, int]:
        """Return the slots whose start is not counted, and since when they are; or those that were left, and starts."""
        slots = {name: text for name, text in self.fields.items() if len(name) > 1}
        return {name: int(text.lstrip(b"s")) for name, text in slots.items() if text.startswith(b"s") == left}


def _look(rows: JobReads, key_sets: Sequence[bytes]) -> Steps[list[bytes]]:
    """Look at some keys; return those that are to be looked at again."""
    keys = yield from _read(rows, key_sets)
    seen = yield from rows.by_members([name for key in keys for name in (*key.slots(left=False), *key.first)])
    again: list[bytes] = []
    groups: list[tuple[bytes, Group]] = []
    for key in keys:
        look = _Look(key, seen)
        yield from look.decide(rows)
        groups.append((key.key_set, look.group()))
        if look.is_cut:
            again.append(key.key_set)
    while groups:
        number = next((at for at in range(1, len(groups)) if _size(groups[: at + 1]) > 6 * _MOVED), len(groups))
        some, groups = groups[:number], groups[number:]
        verdicts = yield from write([group for _, group in some])
        again += [key_set for (key_set, _), done in zip(some, verdicts, strict=True) if not done]
    if keys:
        yield from became_ready()  # also of the next look: an idle worker sleeps until the next due time that it knows
    return list(dict.fromkeys(again))


def _size(groups: Sequence[tuple[bytes, Group]]) -> int:
    return sum(len(group.commands) for _, group in groups)


def _read(rows: JobReads, key_sets: Sequence[bytes]) -> Steps[list[_Key]]:
    """Read those of the keys that are due to be looked at."""
    tasks: list[str] = []
    commands: list[Command] = []
    for key_set in key_sets:
        tasks.append((yield from rows.directory.name(lane_of(key_set)))[1])
        commands += (
            ("ZSCORE", "wakes", key_set),
            ("HGET", "tasks", tasks[-1]),
            ("HGETALL", b"l" + key_set),
            ("ZCARD", b"m" + key_set),
            ("ZCARD", b"o" + key_set),
            ("ZRANGE", b"o" + key_set, 0, _FIRST - 1),
        )
    now, found = yield from read(*commands)
    keys: list[_Key] = []
    for key_set, task, at in zip(key_sets, tasks, range(0, len(found), 6), strict=True):
        wake, limit, fields, admitted, waiting, first = found[at : at + 6]
        if wake is not None and float(wake) <= now:
            pairs = dict(zip(fields[::2], fields[1::2], strict=True))
            keys.append(_Key(key_set, task, limit or b"", pairs, admitted, waiting, first, now))
    return keys


def lane_of(key_set: bytes) -> int:
    """Return the lane of a limit key."""
    return int(key_set[1:].partition(b"\0")[0])


def _turn(job: StoredJob) -> tuple[int, int]:
    return job.record.turn, job.record.seq


class _Look:
    """One look at a key: what follows from it, and under which conditions."""

    def __init__(self, key: _Key, seen: dict[bytes, StoredJob]) -> None:
        self.key = key
        self.seen = seen
        self.is_cut = False
        """Whether more jobs are to be moved than one script may move."""
        self.guards = [
            Guard("h", b"l" + key.key_set, "v", key.fields.get(b"v", b"")),
            Guard("h", "tasks", key.task, key.limit),
        ]
        self.commands: list[Command] = []
        self._lane = lane_of(key.key_set)

    def decide(self, rows: JobReads) -> Steps[None]:
        """Decide who is admitted, by the rules of the model."""
        key = self.key
        is_rated = key.place.key_rate_jobs is not None
        slots = key.slots(left=False)
        code = {name: self.seen[name].record.code for name in slots if name in self.seen}
        unrated = 0
        if is_rated and b"n" not in key.fields:  # the rate was set since the last look
            ready = yield from self._ready(rows, key.admitted)
            unrated = sum(job.member not in slots for job in ready)
        started = [name for name in slots if code.get(name) == RUNNING]
        starts = [*key.slots(left=True).values(), *(self.seen[name].record.started_at for name in started)]
        pending = [since for name, since in slots.items() if code.get(name) == READY]
        rate_at = int(key.fields.get(b"r", 0))
        limit = LimitUse("", "", *key.place.key_limit, rate_at=rate_at, running=key.admitted, now=key.now)
        use = KeyUse(limit, pending, starts, unrated).counted()
        counted = [*key.slots(left=True), *(started if is_rated else ())]
        if counted:
            self.commands.append(("HDEL", b"l" + key.key_set, *counted))
        use, waiting = yield from self._move(rows, use)
        if not self.is_cut:
            self._set(use, is_waiting=waiting > 0)

    def _ready(self, rows: JobReads, most: int) -> Steps[list[StoredJob]]:
        """Return at most so many admitted jobs that are not claimed, the last by turn first."""
        found: list[StoredJob] = []
        for start in range(0, self.key.admitted, _PAGE):
            page = (b"m" + self.key.key_set, start, start + _PAGE - 1, "REV")
            _, (names,) = yield from read(("ZRANGE", *page))
            jobs = yield from rows.by_members(names)
            found += [jobs[name] for name in names if name in jobs and jobs[name].record.code == READY]
            if len(found) >= most:
                break
        return found[:most]

    def _move(self, rows: JobReads, use: KeyUse) -> Steps[tuple[KeyUse, int]]:
        """Admit the first waiting jobs, and let those wait that are over a lowered limit; return how many wait."""
        key = self.key
        back: list[StoredJob] = []
        if use.excess:
            back = yield from self._ready(rows, min(use.excess, _MOVED))
            self.is_cut = use.excess > len(back) == _MOVED
            use = use.sent_back(len(back))
        room = 0 if self.is_cut else use.room
        names = key.first
        if room > len(names) == _FIRST:
            _, (names,) = yield from read(("ZRANGE", b"o" + key.key_set, 0, min(room, _MOVED) - 1))
            self.seen |= yield from rows.by_members(names)
        self.is_cut = self.is_cut or (room > len(names) and key.waiting > len(names))
        ahead = [self.seen[name] for name in names if name in self.seen]
        chosen = sorted([*back, *ahead], key=_turn)[: min(room, _MOVED)]
        for job in back:
            if job not in chosen:
                self._put(job, LIMITED)
        for job in chosen:
            is_due = run_at_of(job.record.turn, job.record.priority) <= key.now
            self._put(job, READY if is_due else SCHEDULED)
            use = use.admitted(1) if is_due else use
            if is_due and use.use.rate_jobs is not None:
                self.commands.append(("HSET", b"l" + key.key_set, job.member, key.now))
        return use, key.waiting + len(back) - len(chosen)

    def _put(self, job: StoredJob, code: int) -> None:
        """Move a job of the key between waiting, ready and scheduled, if it is as it was read."""
        record, key_set, lane = job.record, self.key.key_set, self._lane
        name, key = job.member, bucket(job.id16)
        self.guards.append(Guard("h", key, job.id16, job.text))
        if record.code == code:
            return
        self.commands.append(("HSET", key, job.id16, changed(record, code=code)))
        self.commands.append(("ZREM", f"{'r' if record.code == READY else 'q'}{lane}", name))
        self.commands.append(("ZREM", (b"m" if record.code == READY else b"o") + key_set, name))
        if code == SCHEDULED:
            self.commands.append(("ZADD", f"s{lane}", run_at_of(record.turn, record.priority), name))
        elif code == READY:
            self.commands += (("ZADD", f"r{lane}", record.turn, name), ("ZADD", b"m" + key_set, record.turn, name))
        else:
            self.commands += (("ZADD", f"q{lane}", record.seq, name), ("ZADD", b"o" + key_set, record.turn, name))
            self.commands.append(("HDEL", b"l" + key_set, name))

    def _set(self, use: KeyUse, *, is_waiting: bool) -> None:
        """Record the rate, and when to look again; forget a key without jobs."""
        key_set = self.key.key_set
        wake_at = use.wake_at(is_waiting=is_waiting)
        if use.is_idle and not is_waiting:
            self.commands += (
                ("UNLINK", b"l" + key_set),
                ("ZREM", f"y{self._lane}", key_set),
                ("ZREM", "wakes", key_set),
            )
            return
        self.commands.append(("HSET", b"l" + key_set, "r", use.use.rate_at))
        rated: Command = (
            ("HDEL", b"l" + key_set, "n") if use.use.rate_jobs is None else ("HSET", b"l" + key_set, "n", 1)
        )
        self.commands.append(rated)
        wake: Command = ("ZREM", "wakes", key_set) if wake_at is None else ("ZADD", "wakes", wake_at, key_set)
        self.commands.append(wake)
        if wake_at is not None:
            self.commands.append(("WAKE", ""))

    def group(self) -> Group:
        """Return what writes the decision; another look that has read the same version is refused."""
        stamp: Command = ("HSET", b"l" + self.key.key_set, "v", secrets.token_bytes(8))
        return Group(self.guards, [stamp, *self.commands])


# -- lists


def _key_of_job(rows: JobReads, id: str) -> Steps[list[Any]]:  # noqa: A002 - the name of the parameter
    _, found = yield from rows.seen([id_of(id)])
    for job in found:
        key_set = job.record.key_set(job.names.queue)
        if not job.record.is_limited:
            continue
        now, (wake, limit, rate_at, admitted) = yield from read(
            ("ZSCORE", "wakes", key_set),
            ("HGET", "tasks", job.names.task),
            ("HGET", b"l" + key_set, "r"),
            ("ZCARD", b"m" + key_set),
        )
        wake_at = None if wake is None else max(int(float(wake)), now)
        return [(*decode_place(limit or b"").key_limit, int(rate_at or 0), admitted, now, wake_at)]
    return []


def _key_holders(rows: JobReads, id: str, limit: int) -> Steps[list[Any]]:  # noqa: A002 - as above
    _, found = yield from rows.seen([id_of(id)])
    holders: list[Any] = []
    for job in found:
        if job.record.is_limited:
            _, (names,) = yield from read(("ZRANGE", b"m" + job.record.key_set(job.names.queue), 0, limit - 1))
            held = yield from rows.by_members(names)
            running = [each for each in held.values() if each.record.code == RUNNING]
            _, ends = yield from read(*(("ZSCORE", "leases", each.member) for each in running))
            ordered = sorted(
                zip(ends, running, strict=True), key=lambda pair: (float(pair[0] or 0), pair[1].record.seq)
            )
            holders = [(text_of(each.id16), each.record.seq, *each.names) for _, each in ordered]
    return holders


LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {"key_of_job": _key_of_job, "key_holders": _key_holders}
