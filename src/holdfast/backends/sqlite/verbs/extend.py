"""Extend leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.values import Extension

_encode = msgspec.json.encode
_decode_numbers = msgspec.json.Decoder(list[int]).decode


def extend_many(tx: Tx, leases: Sequence[Lease], duration: timedelta) -> Extension:
    """Extend the leases whose fence is current, expired or not."""
    held = held_among(tx, leases)
    seqs = {"seqs": _encode(list(held)).decode()}
    tx.run("extend_many", {**seqs, "now": tx.now, "span": span_micros(duration)})
    asked = set(_decode_numbers(tx.value("cancel_asked_among", seqs)))
    kept = [lease for lease in leases if held.get(lease.seq) == lease.fence]
    return Extension(
        lost=[lease for lease in leases if held.get(lease.seq) != lease.fence],
        cancel_asked=[lease for lease in kept if lease.seq in asked],
    )


def held_among(tx: Tx, leases: Sequence[Lease]) -> dict[int, int]:
    """Return, by seq, the fence of each job that is held under one of these leases; at most one lease per job is."""
    asked = {(lease.seq, lease.fence) for lease in leases}
    seqs, fences = tx.row("held", {"seqs": _encode([lease.seq for lease in leases]).decode()})
    return dict(asked.intersection(zip(_decode_numbers(seqs), _decode_numbers(fences), strict=True)))
