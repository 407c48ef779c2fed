"""Move due jobs to ready; prune what is past its retention."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.instants import span_micros
from holdfast.store.values import Promotion, Retention

_encode = msgspec.json.encode
_FORGET_WORKERS_AFTER = timedelta(days=1)


def promote(tx: Tx, limit: int) -> Promotion:
    """Move due jobs, the longest due first."""
    due = tx.rows("due_jobs", {"now": tx.now, "limit": limit})
    tx.many("leave_scheduled", [row[:2] for row in due])
    tx.many("due_to_ready", [(lane_id, turn, seq, *counters) for _, seq, lane_id, turn, *counters in due])
    return Promotion(len(due), next_due(tx))


def next_due(tx: Tx) -> timedelta | None:
    """Return how long until the next scheduled job is due."""
    run_at = tx.value("next_due")
    return None if run_at is None else timedelta(microseconds=max(0, run_at - tx.now))


def prune(tx: Tx, retention: Retention, limit: int) -> int:
    """Delete at most `limit` finished jobs with all that belongs to them, the oldest first; how many."""
    pruned = 0
    for state in ("completed", "failed", "cancelled"):
        keep: timedelta | None = getattr(retention, state)
        if keep is not None and pruned < limit:
            pruned += _prune_state(tx, state, tx.now - span_micros(keep), limit - pruned)
    if retention.counts is not None:
        tx.run("prune_counts", {"before": tx.now - span_micros(retention.counts)})
    tx.run("prune_workers", {"before": tx.now - span_micros(_FORGET_WORKERS_AFTER)})
    return pruned


def _prune_state(tx: Tx, state: str, before: int, limit: int) -> int:
    old = [seq for (seq,) in tx.rows(f"old_{state}", {"before": before, "limit": limit})]
    if old:
        seqs = {"seqs": _encode(old).decode()}
        for statement in (f"prune_{state}", "prune_attempts", "prune_jobs"):
            tx.run(statement, seqs)
    return len(old)
