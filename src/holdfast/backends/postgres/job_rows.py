"""The rows of jobs on PostgreSQL: the shared code, with separate hot paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.postgres.verbs.finish import complete_all
from holdfast.backends.sql.job_rows import DUE, SqlJobRows
from holdfast.backends.sql.steps import Numbers, rows, run
from holdfast.backends.sql.text import clean
from holdfast.model.job import JobState, Lease
from holdfast.store.job_rows import Change, CompletedRows
from holdfast.store.steps import Place, Steps, became_ready
from holdfast.store.unique_keys import UniqueClaim
from holdfast.store.values import Finish

_FOLD = 20_000


class PostgresJobRows(SqlJobRows):
    """`JobRows` on PostgreSQL."""

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:  # noqa: D102 - the port states the contracts
        return (yield from complete_all(finishes, followed=True))

    def promote(self, limit: int) -> Steps[int]:  # noqa: D102
        found = yield from rows("promote", limit=limit)
        places: list[Place] = [(lane_id, turn, seq) for lane_id, turn, seq, is_limited in found if not is_limited]
        seqs = Numbers(seq for _, _, seq, is_limited in found if is_limited)
        due = (yield from rows("due_limited", seqs=seqs)) if seqs else []
        limited = [dict(zip(DUE, row, strict=True)) for row in due]
        yield from became_ready(places)
        return len(places) + (yield from self.admit_due(limited, limit))

    def bring_up(self, key_ids: Sequence[int]) -> Steps[Sequence[Place]]:
        """Do in one statement what the shared code does in five: this runs whenever the head of an order key ends."""
        return (yield from rows("bring_up", key_ids=Numbers(key_ids)))

    def add_keys(self, claims: Sequence[UniqueClaim], *, again: bool) -> Steps[int]:  # noqa: D102
        added = yield from rows(
            "add_unique_keys",
            task=[claim.task for claim in claims],
            unique_key=[claim.unique_key for claim in claims],
            id=[claim.id for claim in claims],
            unique_scope=[str(claim.unique_scope) for claim in claims],
            period=[claim.period for claim in claims],
            again=again,
        )
        return len(added)

    def text(self, text: str) -> str:  # noqa: D102
        return clean(text)

    def locked_leases(self, leases: Sequence[Lease]) -> Steps[set[int]]:  # noqa: D102
        seqs, fences = Numbers(lease.seq for lease in leases), Numbers(lease.fence for lease in leases)
        return {seq for (seq,) in (yield from rows("locked_leases", seqs=seqs, fences=fences))}

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:
        """Leave out the changes of jobs in a key that another session has locked."""
        ordered = {change.old.seq for change in changes if change.settles and change.old.limit_key is None}
        limited = {change.old.seq for change in changes if change.settles and change.old.limit_key is not None}
        locked: set[int] = set()
        if ordered:
            locked |= {seq for (seq,) in (yield from rows("locked_order_keys", seqs=Numbers(sorted(ordered))))}
        if limited:
            locked |= {seq for (seq,) in (yield from rows("locked_limit_keys", seqs=Numbers(sorted(limited))))}
        return [change for change in changes if change.old.seq not in locked]

    def detach(self, state: JobState, seqs: Numbers) -> Steps[None]:  # noqa: D102
        if state is JobState.COMPLETED:
            yield from run("detach_completed", seqs=seqs)

    def _lock_ended(self, state: JobState, seqs: Numbers, keep: int) -> Steps[tuple[Numbers, Numbers]]:
        """Ask once more which jobs are needed: while this waited for a row, a child may have been linked to it."""
        locked, children = yield from super()._lock_ended(state, seqs, keep)
        if not locked:
            return locked, children
        needed = {seq for (seq,) in (yield from rows("needed_parents", seqs=locked))}
        return Numbers(seq for seq in locked if seq not in needed), children

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:  # noqa: D102
        yield from run("fold_counts", limit=_FOLD)
        yield from super().prune_records(counts=counts, workers=workers)
