"""Extend leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.sql.steps import Numbers, rows
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.values import Extension


def extend_many(leases: Sequence[Lease], duration: timedelta) -> Steps[Extension]:
    """Extend the leases that are held under their fence, expired or not; skip rows that a transaction has locked."""
    found = yield from rows(
        "extend_many",
        seqs=Numbers(lease.seq for lease in leases),
        fences=Numbers(lease.fence for lease in leases),
        span=span_micros(duration),
    )
    there = {(seq, fence): (asked, extended) for seq, fence, asked, extended in found}
    held = [(lease, *there[key]) for lease in leases if (key := (lease.seq, lease.fence)) in there]
    return Extension(
        lost=[lease for lease in leases if (lease.seq, lease.fence) not in there],
        cancel_asked=[lease for lease, asked, _ in held if asked],
        skipped=[lease for lease, _, extended in held if not extended],
    )
