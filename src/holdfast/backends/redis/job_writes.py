"""From a change that a rule has decided on to the commands that move a job between the sets of its states."""

from __future__ import annotations

import struct

import msgspec

from holdfast.backends.redis.record import (
    APART,
    ASKED,
    BLOCKED,
    CANCELLED,
    CODES,
    COMPLETED,
    FAILED,
    FOLLOWED,
    ISOLATED,
    KEYED,
    LIMITED,
    NOTHING,
    READY,
    RETRYING,
    RUNNING,
    SCHEDULED,
    WAITING,
    Extra,
    Record,
    bucket,
    flag,
    id_of,
    member,
    pack,
    pack_body,
    token_of,
    unpack,
    unpack_body,
)
from holdfast.backends.redis.steps import Command, Group, Guard
from holdfast.model.job import JobState
from holdfast.model.turn import run_at_of
from holdfast.store.job_rows import AttemptRecord, Change, JobRow

LETTERS = {
    LIMITED: "q",
    READY: "r",
    BLOCKED: "b",
    WAITING: "b",
    RUNNING: "x",
    COMPLETED: "c",
    FAILED: "f",
    CANCELLED: "k",
}
COUNTERS = {"enqueued": "e", "completed": "c", "retried": "r", "failed": "f", "cancelled": "k", "lost": "l"}
RUN_TIME = "t"
_encode = msgspec.msgpack.encode
SMALL = 1028  # bytes of a body that lies in the record, as in `lua/insert.lua`
_SPARE = 32  # attempts before the last one to drop: they were dropped before, one by one


def set_of(record: Record) -> str:
    """Return the set of a record's lane and state."""
    if record.code == SCHEDULED:
        return f"{'t' if record.flags & RETRYING else 's'}{record.lane}"
    return f"{LETTERS[record.code]}{record.lane}"


def score_of(record: Record) -> int:
    """Return its place in that set."""
    if record.code == READY:
        return record.turn
    if record.code == SCHEDULED:
        return run_at_of(record.turn, record.priority)
    if record.code in {LIMITED, BLOCKED, WAITING}:
        return record.seq
    if record.code == RUNNING:
        return 0  # members of one score are ordered by seq, which they begin with
    return record.finished_at or 0


def group_of(change: Change) -> Group:
    """Return what writes a change, guarded by the row as it was read."""
    old = change.old
    token = token_of(old)
    was, id16 = unpack(token.record), id_of(old.id)
    name, key = member(old.seq, id16), bucket(id16)
    guards = [Guard("h", key, id16, token.record)]
    if change.unextended and token.until is not None:
        guards.append(Guard("z", "leases", name, token.until))
    if old.held == 1:  # it was alone, if its worker has claimed nothing since
        guards.append(Guard("ZCARD", f"w{was.worker}", "", 1))
    becomes = _record(was, change)
    commands: list[Command] = [("HSET", key, id16, pack(becomes))]
    if not change.only_follows:
        commands += _moves(was, becomes, name, old)
        commands += _attempt(id16, change.attempt)
        commands += [("COUNT", was.lane, COUNTERS[thing]) for thing in change.counts]
    if change.concerns_children:
        commands.append(("CHANGED", name))
    if change.broken_by is not None:
        commands.append(("BROKEN", id16, struct.pack(">Q", change.broken_by)))
    if change.is_mended:
        commands.append(("BROKEN", id16, ""))
    if change.clears_isolation:
        commands.append(("CALM", was.worker))
    return Group(guards, commands)


def replacing(old: JobRow, new: JobRow, payload: str, body: bytes) -> Group:
    """Return what gives a waiting job new arguments and a new time; a blocked one keeps its place."""
    token = token_of(old)
    was, id16 = unpack(token.record), id_of(old.id)
    _, headers, timeout = unpack_body(body)
    code = was.code if old.state is JobState.BLOCKED else CODES[new.state]
    code = LIMITED if code == READY and was.is_limited else code
    text = pack_body(payload, headers, timeout)
    commands: list[Command] = []
    flags = was.flags & ~(RETRYING | APART)
    if len(text) > SMALL:
        commands.append(("HSET", bucket(id16), id16 + b"p", text[4:]))
        flags, text = flags | APART, text[:4]
    elif was.flags & APART:
        commands.append(("HDEL", bucket(id16), id16 + b"p"))
    becomes = was._replace(code=code, flags=flags, turn=new.turn, body=text)
    commands.append(("HSET", bucket(id16), id16, pack(becomes)))
    commands += _moves(was, becomes, member(old.seq, id16), old)
    return Group([Guard("h", bucket(id16), id16, token.record)], commands)


def _record(was: Record, change: Change) -> Record:
    """Return the record of the new row."""
    new = change.new
    if change.only_follows:
        return was._replace(flags=was.flags | FOLLOWED)
    code = WAITING if change.waits else LIMITED if change.joins_limit_key else CODES[new.state]
    has_ended = code >= COMPLETED
    flags = was.flags & (KEYED | APART)
    flags |= flag(FOLLOWED, new.followed and not has_ended)
    if code == SCHEDULED:
        flags |= flag(RETRYING, new.retrying)
    extra = NOTHING
    if code == RUNNING:
        flags |= flag(ISOLATED, new.isolated) | flag(ASKED, new.cancel_asked)
        extra = msgspec.structs.replace(was.extra, why=new.cancel_reason)
    elif has_ended:
        extra = Extra(why=new.reason or "", finished_at=new.finished_at)
    return was._replace(
        code=code,
        flags=flags,
        interrupted=new.interrupted,
        lost=new.lost,
        attempt=new.attempt,
        excused=new.excused,
        turn=new.turn,
        extra=extra,
    )


def _moves(was: Record, becomes: Record, name: bytes, row: JobRow) -> list[Command]:
    if becomes.code == RUNNING:
        return [("ZADD", "asked", was.worker, name)] if becomes.flags & ASKED else []
    commands: list[Command] = [("ZREM", set_of(was), name)]
    if was.code == RUNNING:
        commands += [("ZREM", key, name) for key in (f"w{was.worker}", "leases", "asked")]
    commands.append(("ZADD", set_of(becomes), score_of(becomes), name))
    key_set = was.key_set(row.queue)
    if was.code == becomes.code == LIMITED:  # its turn has changed
        return [*commands, ("ZADD", b"o" + key_set, becomes.turn, name)]
    if was.in_key_set and (was.is_limited or not becomes.in_key_set):
        commands.append(("LEAVE", key_set, name, was.started_at if was.code == RUNNING else ""))
    if becomes.in_key_set and (was.is_limited or not was.in_key_set):
        commands.append(("JOIN", key_set, name, becomes.turn if was.is_limited else ""))
    return commands


def _attempt(id16: bytes, attempt: AttemptRecord | None) -> list[Command]:
    if attempt is None:
        return []
    key = b"a" + id16
    *facts, failure, thin = attempt
    words = None if failure is None else [failure.error_class, failure.message, failure.traceback, failure.signature]
    commands: list[Command] = [("HSET", key, attempt.attempt, _encode([*facts, words]))]
    if thin is not None:
        after, up_to = thin
        commands.append(("HDEL", key, *range(max(after, up_to - _SPARE) + 1, up_to + 1)))
    return commands
