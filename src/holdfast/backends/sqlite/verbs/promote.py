"""Move due jobs to ready."""

from __future__ import annotations

from holdfast.backends.sqlite.connection import Tx
from holdfast.store.steps import Place


def promote(tx: Tx, limit: int) -> list[Place]:
    """Move due jobs to ready, the longest due first; return their places."""
    due = tx.rows("due_jobs", {"now": tx.now, "limit": limit})
    tx.many("leave_due", [row[:2] for row in due])
    tx.many("due_to_ready", [(lane_id, turn, seq, *counters) for _, seq, lane_id, turn, *counters in due])
    return [(lane_id, turn, seq) for _, seq, lane_id, turn, *_ in due]
