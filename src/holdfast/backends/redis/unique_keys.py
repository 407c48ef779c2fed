"""Unique keys on Redis: a hash of all keys, and a field next to the record of each job that was enqueued with one.

Nothing is locked: what was read of a key, and of the job that holds it, must still be there when the verb writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.backends.redis.job_reads import JobReads
from holdfast.backends.redis.record import RUNNING, bucket, id_of, text_of, unpack
from holdfast.backends.redis.steps import Command, Guard, change, collect, pending, read, read_many
from holdfast.model.conditions import Unique, UniqueScope
from holdfast.model.unique import Holder, Stage
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import TakenKeys, UniqueClaim, UniqueJob, UniqueKey

_HOLDER = struct.Struct(">16scQ")
_SCOPES = {UniqueScope.WAITING: b"w", UniqueScope.UNFINISHED: b"u", UniqueScope.PERIOD: b"p"}
_SCOPE_OF = {letter: scope for scope, letter in _SCOPES.items()}


def _name(task: str, unique_key: str) -> bytes:
    return f"{task}\0{unique_key}".encode()


def _pack(holder: Holder) -> bytes:
    """Return the id of the holder, its scope, the end of its period or 0, and the id of the last replacement."""
    replaced = b"" if holder.replaced_by is None else id_of(holder.replaced_by)
    return _HOLDER.pack(id_of(holder.id), _SCOPES[holder.scope], holder.until or 0) + replaced


class _Read(NamedTuple):
    """A key as it was read, its holder and the holder's record."""

    text: bytes
    holder: Holder
    id16: bytes
    record: bytes


def _holder(text: bytes, record: bytes | None) -> _Read:
    id16, letter, until = _HOLDER.unpack_from(text)
    replaced = text[_HOLDER.size :]
    stage: Stage | None = None
    if record is not None:
        code = unpack(record).code
        stage = Stage.RUNNING if code == RUNNING else Stage.ENDED if code > RUNNING else Stage.WAITING
    holder = Holder(text_of(id16), _SCOPE_OF[letter], until or None, stage, text_of(replaced) if replaced else None)
    return _Read(text, holder, id16, record or b"")


def take_keys(claims: Sequence[UniqueClaim], *, again: bool) -> Steps[TakenKeys]:
    """Read the keys with their holders; give missing ones to the first claims for them, when the verb writes."""
    names = {claim.name: _name(*claim.name) for claim in claims}
    ids = [id_of(claim.id) for claim in claims]
    commands: list[Command] = [("HGET", "u", field) for field in names.values()]
    now, found = yield from read_many([*commands, *(("HGET", bucket(id16), id16) for id16 in ids)])
    texts = dict(zip(names, found[: len(names)], strict=True))
    own = found[len(names) :]
    known = {claim.id for claim, record in zip(claims, own, strict=True) if record is not None}
    collected = yield from pending()
    # A job that exists by then keeps the conditions with which it was enqueued.
    collected.guards += [
        Guard("h", bucket(id16), id16, b"") for id16, record in zip(ids, own, strict=True) if record is None
    ]
    holders = [text[:16] for text in texts.values() if text is not None]
    _, records = yield from read_many([("HGET", bucket(id16), id16) for id16 in holders])
    held = dict(zip(holders, records, strict=True))
    keys: dict[tuple[str, str], UniqueKey] = {}
    given = 0
    for claim in claims:
        name, text = claim.name, texts[claim.name]
        if name in keys:
            continue
        if text is not None:
            seen = _holder(text, held[text[:16]])
            keys[name] = UniqueKey(*name, seen.holder)
            collected.guards.append(Guard("h", "u", names[name], text))
            collected.guards.append(Guard("h", bucket(seen.id16), seen.id16, seen.record))
        elif claim.id not in known or again:
            until = None if claim.period is None else now + claim.period
            holder = Holder(claim.id, claim.unique_scope, until, Stage.WAITING)
            keys[name] = UniqueKey(*name, holder)
            collected.guards.append(Guard("h", "u", names[name], b""))
            collected.commands += _held(names[name], holder)[: 2 if until else 1]
            given += 1
    if given == len(claims) and not known:
        return TakenKeys(now, {}, set(), all_given=True)
    return TakenKeys(now, keys, known)


def _held(field: bytes, holder: Holder) -> list[Command]:
    until: Command = ("ZREM", "until", field) if holder.until is None else ("ZADD", "until", holder.until, field)
    return [("HSET", "u", field, _pack(holder)), until]


def recorded(id16: bytes, task: str, unique: Unique) -> Command:
    """Return what records the key of a new job."""
    return ("HSET", bucket(id16), id16 + b"u", _SCOPES[unique.scope] + _name(task, unique.key))


def hold_keys(keys: Sequence[UniqueKey]) -> Steps[None]:
    """Write the holders of keys that were read, when the verb writes."""
    yield from collect([], [command for key in keys for command in _held(_name(*key.name), key.holder)])


def prune_keys(limit: int) -> Steps[None]:
    """Delete keys whose period has ended."""
    now, (found,) = yield from read(("ZRANGE", "until", 0, min(limit, 1000) - 1, "WITHSCORES"))
    over = [field for field, until in zip(found[::2], found[1::2], strict=True) if float(until) <= now]
    if not over:
        return
    _, texts = yield from read(*(("HGET", "u", field) for field in over))
    guards = [Guard("h", "u", field, text or b"") for field, text in zip(over, texts, strict=True)]
    yield from change(guards, ("HDEL", "u", *over), ("ZREM", "until", *over))


def _unique_among(rows: JobReads, seqs: Sequence[int]) -> Steps[list[UniqueJob]]:
    seen = yield from rows.by_seq(seqs)
    _, found = yield from read(*(("HGET", bucket(job.id16), job.id16 + b"u") for job in seen))
    jobs: list[UniqueJob] = []
    for job, text in zip(seen, found, strict=True):
        if text is not None:
            task, _, key = text[1:].decode().partition("\0")
            jobs.append(UniqueJob(text_of(job.id16), task, key, _SCOPE_OF[text[:1]]))
    return jobs


def key_of(text: bytes | None) -> str | None:
    """Return the key in the field of a unique job."""
    return None if text is None else text[1:].decode().partition("\0")[2]


LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {"unique_among": _unique_among}
