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
    answers = [(lease, there.get((lease.seq, lease.fence))) for lease in leases]
    return Extension(
        lost=[lease for lease, answer in answers if answer is None],
        cancel_asked=[lease for lease, answer in answers if answer is not None and answer[0]],
        skipped=[lease for lease, answer in answers if answer is not None and not answer[1]],
    )
