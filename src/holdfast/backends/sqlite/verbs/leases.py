"""Extend leases, note progress, and see who is asked to cancel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.values import Extension, Verdict, WorkerBeat

_encode = msgspec.json.encode
_decode_seqs = msgspec.json.Decoder(list[int]).decode
_decode_numbers = msgspec.json.Decoder(list[int]).decode


def extend_many(tx: Tx, leases: Sequence[Lease], duration: timedelta) -> Extension:
    """Extend those that are held under their fence, expired or not."""
    held = held_among(tx, leases)
    seqs = {"seqs": _encode(list(held)).decode()}
    tx.run("extend_many", {**seqs, "now": tx.now, "span": span_micros(duration)})
    asked = set(_decode_seqs(tx.value("asked_to_cancel_among", seqs)))
    kept = [lease for lease in leases if held.get(lease.seq) == lease.fence]
    return Extension(
        lost=[lease for lease in leases if held.get(lease.seq) != lease.fence],
        cancel_asked=[lease for lease in kept if lease.seq in asked],
    )


def held_among(tx: Tx, leases: Sequence[Lease]) -> dict[int, int]:
    """Return the fence of each job that is held under one of these leases, by seq; at most one of a job's can be."""
    asked = {(lease.seq, lease.fence) for lease in leases}
    seqs, fences = tx.row("held", {"seqs": _encode([lease.seq for lease in leases]).decode()})
    return dict(asked.intersection(zip(_decode_numbers(seqs), _decode_numbers(fences), strict=True)))


def extend_one(tx: Tx, lease: Lease, duration: timedelta) -> Verdict:
    """Extend one lease."""
    changed = tx.run(
        "extend_one", {"seq": lease.seq, "fence": lease.fence, "now": tx.now, "span": span_micros(duration)}
    )
    return Verdict.DONE if changed else Verdict.LOST


def cancel_asked(tx: Tx, worker_id: str) -> list[Lease]:
    """Return the worker's leases whose jobs are to be cancelled."""
    asked = tx.rows("asked_to_cancel", {"worker_id": worker_id})
    return [Lease(job_id=job_id, seq=seq, fence=fence) for seq, fence, job_id in asked]


def unheard(tx: Tx, worker_id: str, after: int) -> list[Lease]:
    """Return the worker's leases under larger fences than it knows of."""
    return [Lease(*row) for row in tx.rows("unheard", {"worker_id": worker_id, "after": after})]


def progress(tx: Tx, lease: Lease, percent: float | None, note: str | None) -> Verdict:
    """Note how far an attempt has come."""
    changed = tx.run("set_progress", {"seq": lease.seq, "fence": lease.fence, "percent": percent, "note": note})
    return Verdict.DONE if changed else Verdict.LOST


def beat(tx: Tx, worker: WorkerBeat) -> None:
    """Note that a worker lives."""
    tx.run(
        "beat",
        {"worker_id": worker.worker_id, "beat": _encode(worker).decode(), "now": tx.now},
    )
