"""Move due jobs to ready; prune what is past its retention."""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.sql.steps import Rows, rows, run, value
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.values import Promotion, Retention

_FORGET_WORKERS_AFTER = timedelta(days=1)
_FOLD = 20_000


def next_due() -> Steps[timedelta | None]:
    """Return how long until the next scheduled job is due."""
    wait = yield from value("next_due")
    return None if wait is None else timedelta(microseconds=wait)


def promote(limit: int) -> Steps[tuple[Promotion, Rows]]:
    """Move due jobs, the longest due first; also returns where they lie now."""
    moved = yield from rows("promote", limit=limit)
    return Promotion(len(moved), (yield from next_due())), moved


def prune(retention: Retention, limit: int) -> Steps[int]:
    """Delete at most `limit` finished jobs with all that belongs to them, the oldest first; how many."""
    pruned = 0
    for state in ("completed", "failed", "cancelled"):
        keep: timedelta | None = getattr(retention, state)
        if keep is not None and pruned < limit:
            pruned += yield from _prune_state(state, span_micros(keep), limit - pruned)
    yield from run("fold_counts", limit=_FOLD)
    if retention.counts is not None:
        yield from run("prune_counts", keep=span_micros(retention.counts))
    yield from run("prune_workers", keep=span_micros(_FORGET_WORKERS_AFTER))
    return pruned


def _prune_state(state: str, keep: int, limit: int) -> Steps[int]:
    old = [seq for (seq,) in (yield from rows(f"old_{state}", keep=keep, limit=limit))]
    if not old:
        return 0
    # Another may have pruned some of them meanwhile, or a person may have sent one back.
    pruned = [seq for (seq,) in (yield from rows(f"prune_{state}", seqs=old, keep=keep))]
    for statement in ("prune_attempts", "prune_jobs"):
        yield from run(statement, seqs=pruned)
    return len(pruned)
