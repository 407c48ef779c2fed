"""Unique keys on SQL: `store.unique_keys.UniqueRows`, shared by all dialects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.backends.sql.steps import Ask, Numbers, each, records, run, together
from holdfast.model.conditions import UniqueScope
from holdfast.model.job import JobState
from holdfast.model.unique import Holder
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import (
    Replacement,
    TakenKeys,
    UniqueClaim,
    UniqueJob,
    UniqueKey,
    stage_of,
)

AddKeys = Callable[[Sequence[UniqueClaim]], Steps[int]]


class _KeyOfClaim(NamedTuple):
    """A row of `unique_holders`."""

    task: str
    unique_key: str
    id: str | None
    unique_scope: str | None
    until_at: int | None
    replaced_by: str | None
    stage: str | None
    known: str | None
    now: int


def take_keys(claims: Sequence[UniqueClaim], add_keys: AddKeys) -> Steps[TakenKeys]:
    """Add the missing keys; if some were not missing, lock those and read their holders.

    A constant number of statements, whatever the number of claims. `add_keys` returns how many keys it has added.
    """
    first = {(claim.task, claim.unique_key): claim for claim in reversed(claims)}
    wanted = [first[name] for name in sorted(first)]
    if (yield from add_keys(wanted)) == len(claims):
        return TakenKeys(0, {}, set(), all_given=True)
    _, found = yield from together(
        Ask("lock_unique_keys", {"claims": _listed(wanted)}),
        Ask("unique_holders", {"claims": _listed(claims)}, _KeyOfClaim),
    )
    rows: list[_KeyOfClaim] = found
    keys = {(row.task, row.unique_key): key for row in rows if (key := _key(row)) is not None}
    now = max((row.now for row in rows), default=0)
    return TakenKeys(now, keys, {row.known for row in rows if row.known is not None})


def _listed(claims: Sequence[UniqueClaim]) -> str:
    return msgspec.json.encode([claim._asdict() for claim in claims]).decode()


def _key(row: _KeyOfClaim) -> UniqueKey | None:
    if row.id is None or row.unique_scope is None:
        return None
    holder = Holder(row.id, UniqueScope(row.unique_scope), row.until_at, stage_of(row.stage), row.replaced_by)
    return UniqueKey(row.task, row.unique_key, holder)


def hold_keys(keys: Sequence[UniqueKey]) -> Steps[None]:
    """Write the holders of locked keys."""
    yield from each(
        "hold_unique_keys",
        [
            {
                "task": task,
                "unique_key": unique_key,
                "id": holder.id,
                "unique_scope": str(holder.scope),
                "until_at": holder.until,
                "replaced_by": holder.replaced_by,
            }
            for task, unique_key, holder in keys
        ],
    )


def drop_keys(keys: Sequence[UniqueKey]) -> Steps[None]:
    """Delete locked keys."""
    yield from each(
        "drop_unique_keys",
        [{"task": task, "unique_key": unique_key, "id": holder.id} for task, unique_key, holder in keys],
    )


def set_arguments(replacements: Sequence[Replacement]) -> Steps[None]:
    """Write payloads and turns of locked jobs."""
    yield from each(
        "set_arguments",
        [{"seq": old.seq, "payload": payload, "turn": new.turn} for old, new, payload in replacements],
    )
    waiting = [old.seq for old, _, _ in replacements if old.limit_key is not None and old.state is JobState.BLOCKED]
    if waiting:
        yield from run("set_limited_places", seqs=Numbers(waiting))


def prune_keys(limit: int) -> Steps[None]:
    """Delete keys whose period has ended."""
    yield from run("prune_unique_keys", limit=limit)


def drop_keys_of(seqs: Numbers) -> Steps[None]:
    """Delete the keys of jobs that are being deleted: one read if none of them has a unique key."""
    gone = yield from records(UniqueJob, "unique_among", seqs=seqs)
    named = [{"task": job.task, "unique_key": job.unique_key, "id": job.id} for job in gone]
    yield from each("drop_keys_of_pruned", sorted(named, key=lambda key: (key["task"], key["unique_key"])))
