"""Extend leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.sqlite.connection import Tx, as_json, numbers
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.values import Extension


def extend_many(tx: Tx, leases: Sequence[Lease], duration: timedelta) -> Extension:
    """Extend the leases whose fence is current, expired or not."""
    held = held_among(tx, leases)
    seqs = {"seqs": as_json(list(held))}
    tx.run("extend_many", {**seqs, "now": tx.now, "span": span_micros(duration)})
    asked = set(numbers(tx.value("cancel_asked_among", seqs)))
    kept = [lease for lease in leases if held.get(lease.seq) == lease.fence]
    return Extension(
        lost=[lease for lease in leases if held.get(lease.seq) != lease.fence],
        cancel_asked=[lease for lease in kept if lease.seq in asked],
    )


def held_among(tx: Tx, leases: Sequence[Lease]) -> dict[int, int]:
    """Return, by seq, the fence of each job that is held under one of these leases; at most one lease per job is."""
    asked = {(lease.seq, lease.fence) for lease in leases}
    ((seqs, fences),) = tx.rows("held", {"seqs": as_json([lease.seq for lease in leases])})
    return dict(asked.intersection(zip(numbers(seqs), numbers(fences), strict=True)))
