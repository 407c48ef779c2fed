"""Complete jobs: the hot path at the end of an attempt.

Three statements for all jobs of one claim, each with the fence. Only if fewer rows were written than requested, or some
are heads of order keys, further statements find out which. Results are written one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from holdfast.backends.sql.job_writes import minute_of
from holdfast.backends.sqlite.connection import Tx, as_json, numbers
from holdfast.model.outcome import Completed
from holdfast.store.job_rows import CompletedRows
from holdfast.store.values import Finish

_PLAIN = {None}


def complete_all(tx: Tx, finishes: Sequence[Finish]) -> CompletedRows:
    """Complete the jobs that are held under their leases."""
    lots: defaultdict[int, dict[int, str | None]] = defaultdict(dict)
    for item in finishes:
        lease, outcome = item.lease, item.outcome
        lots[lease.fence].setdefault(lease.seq, outcome.result if isinstance(outcome, Completed) else None)
    done = CompletedRows(set(), [])
    for fence, results in lots.items():
        _complete(tx, fence, results, done)
    return done


def _complete(tx: Tx, fence: int, results: Mapping[int, str | None], done: CompletedRows) -> None:
    """Complete jobs that were claimed together."""
    lot = {"seqs": as_json(list(results)), "fence": fence}
    tx.run("count_completed", {**lot, "now": tx.now, "minute": minute_of(tx.now)})
    if len(results) > 1 and set(results.values()) == _PLAIN:
        completed = tx.run("complete_many", {**lot, "now": tx.now})
    else:
        held = {"fence": fence, "now": tx.now}
        completed = tx.many("complete_one", [{**held, "seq": seq, "result": result} for seq, result in results.items()])
    if completed < len(results):
        held_seqs = numbers(tx.value("held_under", lot))
        done.refused.update((seq, fence) for seq in results.keys() - held_seqs)
    if tx.run("leave_completed", {**lot, "followed": 0}) < completed:  # the remaining ones are heads of order keys
        done.heads.extend(numbers(tx.value("held_under", lot)))
        tx.run("leave_completed", {**lot, "followed": 1})
