"""Take leases from workers that are dead or silent, and give jobs back.

Expiry is judged in the statement's own transaction, under the write lock: a lease that was extended a moment ago is not
seen as expired, and one that is taken here is stale for its holder from this commit on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import running as rows
from holdfast.backends.sqlite.verbs.counting import count
from holdfast.backends.sqlite.verbs.running import Running
from holdfast.model.budget import after_interruption, after_loss, after_return, was_alone
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.store.values import Rescued, Verdict

_encode = msgspec.json.encode


def lose(tx: Tx, running: Running, failure: Failure, *, alone: bool, by_holder: bool) -> JobState:
    """Apply the lost-worker rule to one running job."""
    rows.record(tx, running, "lost", failure, by_holder=by_holder)
    count(tx, running.lane_id, lost=1)
    verdict = after_loss(running.counters, max_attempts=running.max_attempts, alone=alone)
    if verdict.failed_because is not None and not running.cancel_asked:
        return rows.to_failed(tx, running, verdict.failed_because, lost=verdict.counters.lost)
    return rows.to_ready(tx, running, verdict.counters)


def rescue(tx: Tx, unbroken: timedelta | None, limit: int, *, waited: timedelta) -> list[Rescued]:
    """Take expired leases, but none after waiting a quarter of it for the write lock: its holder waited too."""
    access = None if unbroken is None else span_micros(unbroken)
    expired = tx.rows("expired", {"now": tx.now, "unbroken": access, "waited": span_micros(waited), "limit": limit})
    return _take(tx, [seq for (seq,) in expired], "its lease expired")


def rescue_worker(tx: Tx, worker_id: str, reason: str, limit: int) -> list[Rescued]:
    """Take all leases of a dead worker; forget it once none is left."""
    held = tx.rows("held_by_worker", {"worker_id": worker_id, "limit": limit})
    rescued = _take(tx, [seq for (seq,) in held], reason)
    if len(held) < limit:
        tx.run("forget_worker", {"worker_id": worker_id})
    return rescued


def _take(tx: Tx, seqs: Sequence[int], reason: str) -> list[Rescued]:
    rescued: list[Rescued] = []
    taken = [running for running in (rows.find(tx, seq, None) for seq in seqs) if running is not None]
    workers = {"worker_ids": _encode(sorted({running.worker_id for running in taken})).decode()}
    held = dict(tx.rows("held_by_each", workers))
    for running in taken:
        failure = Failure("WorkerLost", f"worker {running.worker_id} was lost: {reason}")
        alone = was_alone(isolated=bool(running.isolated), held=held[running.worker_id])
        state = lose(tx, running, failure, alone=alone, by_holder=False)
        job_id, queue, task = tx.row("describe_job", {"seq": running.seq})
        rescued.append(Rescued(job_id, task, queue, running.worker_id, running.attempt, state))
    tx.run("isolate_no_more", workers)
    return rescued


def release(tx: Tx, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
    """Give jobs back to ready."""
    verdicts: list[Verdict] = []
    for lease in leases:
        running = rows.find(tx, lease.seq, lease.fence)
        if running is None:
            verdicts.append(Verdict.LOST)
            continue
        verdicts.append(Verdict.DONE)
        if started:
            _interrupt(tx, running)
        else:
            rows.record(tx, running, "released", None)
            rows.to_ready(tx, running, after_return(running.counters))
    return verdicts


def _interrupt(tx: Tx, running: Running) -> None:
    rows.record(tx, running, "released", Failure("Interrupted", "the worker was stopped while the job ran"))
    verdict = after_interruption(running.counters, max_attempts=running.max_attempts)
    if verdict.failed_because is not None and not running.cancel_asked:
        rows.to_failed(tx, running, verdict.failed_because)
    else:
        rows.to_ready(tx, running, verdict.counters)
