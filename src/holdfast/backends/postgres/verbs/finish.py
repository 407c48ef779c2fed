"""Complete jobs: one statement for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.steps import Numbers, rows
from holdfast.model.outcome import Completed
from holdfast.store.job_rows import CompletedRows
from holdfast.store.steps import Steps
from holdfast.store.values import Finish


def complete_all(finishes: Sequence[Finish], *, followed: bool, patience: int | None = None) -> Steps[CompletedRows]:
    """Complete the jobs whose leases are held; without `followed`, those that are followed are refused.

    `patience`: the milliseconds to wait for a lock of another client; None leaves the timeout of the session.
    """
    wanted = {(finish.lease.seq, finish.lease.fence): finish.outcome for finish in reversed(finishes)}
    ordered = sorted(wanted)
    results = [outcome.result if isinstance(outcome := wanted[key], Completed) else None for key in ordered]
    ((count, seqs, fences, heads),) = yield from rows(
        "complete",
        seqs=Numbers(seq for seq, _ in ordered),
        fences=Numbers(fence for _, fence in ordered),
        results=results if any(results) else None,
        number=len(ordered),
        followed=followed,
        patience=patience,
    )
    refused: set[tuple[int, int]] = set() if count == len(ordered) else wanted.keys() - zip(seqs, fences, strict=True)
    return CompletedRows(refused, heads)
