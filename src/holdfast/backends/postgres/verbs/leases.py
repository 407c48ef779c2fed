"""Extend leases, note progress, and see who is asked to cancel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.postgres.verbs.text import clean_or_none
from holdfast.backends.sql.steps import Numbers, rows, run
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.values import Extension, Verdict, WorkerBeat

_encode = msgspec.json.encode


def extend_many(leases: Sequence[Lease], duration: timedelta) -> Steps[Extension]:
    """Extend those that are held under their fence, expired or not; what a transaction has locked is left to it."""
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


def extend_one(lease: Lease, duration: timedelta) -> Steps[Verdict]:
    """Extend one lease."""
    changed = yield from run("extend_one", seq=lease.seq, fence=lease.fence, span=span_micros(duration))
    return Verdict.DONE if changed else Verdict.LOST


def cancel_asked(worker_id: str) -> Steps[list[Lease]]:
    """Return the worker's leases whose jobs are to be cancelled."""
    return [Lease(*row) for row in (yield from rows("asked_to_cancel", worker_id=worker_id))]


def unheard(worker_id: str, after: int) -> Steps[list[Lease]]:
    """Return the worker's leases under larger fences than it knows of."""
    return [Lease(*row) for row in (yield from rows("unheard", worker_id=worker_id, after=after))]


def progress(lease: Lease, percent: float | None, note: str | None) -> Steps[Verdict]:
    """Note how far an attempt has come."""
    changed = yield from run(
        "set_progress", seq=lease.seq, fence=lease.fence, percent=percent, note=clean_or_none(note)
    )
    return Verdict.DONE if changed else Verdict.LOST


def beat(worker: WorkerBeat) -> Steps[None]:
    """Note that a worker lives."""
    yield from run("beat", worker_id=worker.worker_id, beat=_encode(worker).decode())
