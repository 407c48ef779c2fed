"""Lock the leases of many jobs, for a handler's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from holdfast.backends.sql.steps import Numbers, rows
from holdfast.model.job import Lease
from holdfast.store.job_rows import Key
from holdfast.store.steps import Steps


def lock_jobs(leases: Sequence[Lease], milliseconds: int) -> Steps[frozenset[Key]]:
    """Lock their rows by seq, as every verb does; return those that are held: usually all, and then none is listed."""
    fence, *others = {lease.fence for lease in leases}
    if others:
        return (yield from _lock_pairs(leases, milliseconds))
    seqs = Numbers(sorted([lease.seq for lease in leases]))
    ((held, _),) = yield from rows("lock_claimed", seqs=seqs, fence=fence, milliseconds=milliseconds)
    return frozenset(zip(seqs if held is None else held, repeat(fence)))


def _lock_pairs(leases: Sequence[Lease], milliseconds: int) -> Steps[frozenset[Key]]:
    ordered = sorted([(lease.seq, lease.fence) for lease in leases])
    seqs, fences = map(Numbers, zip(*ordered, strict=True))
    ((places, _),) = yield from rows("lock_batch", seqs=seqs, fences=fences, milliseconds=milliseconds)
    held: list[Key] = ordered if places is None else [ordered[place - 1] for place in places]
    return frozenset(held)
