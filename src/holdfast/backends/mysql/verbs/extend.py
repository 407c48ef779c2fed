"""Extend leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.sql.steps import Ask, Numbers, rows, together
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.values import Extension


def extend_many(leases: Sequence[Lease], duration: timedelta) -> Steps[Extension]:
    """Extend the leases that are held under their fence, expired or not; skip rows that a transaction has locked."""
    asked = {(lease.seq, lease.fence) for lease in leases}
    seqs = Numbers(sorted(seq for seq, _ in asked))
    locked = yield from rows("lock_extendable", seqs=seqs, fences=Numbers(fence for _, fence in asked))
    held = asked.intersection(locked)
    _, seen = yield from together(
        Ask("extend_many", {"seqs": Numbers(sorted(seq for seq, _ in held)), "span": span_micros(duration)}),
        Ask("seen_leases", {"seqs": seqs}),
    )
    there = {(seq, fence): bool(cancel_asked) for seq, fence, cancel_asked in seen}
    return Extension(
        lost=[lease for lease in leases if (lease.seq, lease.fence) not in there],
        cancel_asked=[lease for lease in leases if there.get((lease.seq, lease.fence))],
        skipped=[
            lease for lease in leases if (lease.seq, lease.fence) in there and (lease.seq, lease.fence) not in held
        ],
    )
