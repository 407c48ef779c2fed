"""The rows of jobs: the shared code, with separate hot paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.mysql.execute import views
from holdfast.backends.mysql.verbs.claim import Lane, first_ready
from holdfast.backends.mysql.verbs.finish import complete_all
from holdfast.backends.mysql.verbs.snapshots import (
    first_of_key_now,
    is_dated,
    keys_now,
    lock_jobs_now,
    lock_order_keys_now,
    take_keys_now,
)
from holdfast.backends.sql.job_rows import SqlJobRows, locked
from holdfast.backends.sql.job_writes import COUNTS
from holdfast.backends.sql.order_keys import FirstBlocked, Settled, make_heads, settle_locked
from holdfast.backends.sql.parents import PlacedJob
from holdfast.backends.sql.steps import Ask, Numbers, Record, each, records, rows, run, together, value
from holdfast.backends.sql.text import clean
from holdfast.model.job import JobState, Lease
from holdfast.store.job_rows import ById, ByIds, Change, CompletedRows, JobRow, Locked, Selection, Waiting
from holdfast.store.steps import Place, Steps, became_ready
from holdfast.store.unique_keys import TakenKeys, UniqueClaim
from holdfast.store.values import Finish

_FOLD = 20_000
_COUNTERS = ("enqueued", "completed", *COUNTS[1:], "run_time")


class MysqlJobRows(SqlJobRows):
    """`JobRows` on MySQL and MariaDB."""

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:  # noqa: D102 - the port states the contracts
        return (yield from complete_all(finishes))

    def bring_up(self, key_ids: Sequence[int]) -> Steps[Sequence[Place]]:
        """Lock the first waiting job of each key by its own statement, which finds the next one if that is gone."""
        if (yield from is_dated()):
            found: list[FirstBlocked] = []
            for key_id in key_ids:
                found += yield from first_of_key_now(key_id)
            return (yield from make_heads(key_ids, found))
        answers = yield from together(*(Ask("first_of_key", {"key_id": key_id}, FirstBlocked) for key_id in key_ids))
        return (yield from make_heads(key_ids, [row for answer in answers for row in answer]))

    def add_keys(self, claims: Sequence[UniqueClaim], *, again: bool) -> Steps[int]:  # noqa: D102
        wanted = [{**claim._asdict(), "unique_scope": str(claim.unique_scope)} for claim in claims]
        return len((yield from rows("add_missing_keys", claims=wanted, again=again)))

    def take_keys(self, claims: Sequence[UniqueClaim], *, again: bool = False) -> Steps[TakenKeys]:  # noqa: D102
        if (yield from is_dated()):
            return (yield from take_keys_now(claims, again=again))
        return (yield from super().take_keys(claims, again=again))

    def lock(self, selection: Selection) -> Steps[Locked]:  # noqa: D102
        match selection:
            case ByIds(ids) | Waiting(ids) if (yield from is_dated()):
                return locked((yield from lock_jobs_now(ids, only_waiting=isinstance(selection, Waiting))))
            case ById(job_id) if (yield from is_dated()):
                return locked((yield from lock_jobs_now([job_id])))
            case _:
                return (yield from super().lock(selection))

    def places(self, ids: Sequence[str]) -> Steps[Sequence[PlacedJob]]:
        """Return jobs of both views."""
        seen = yield from views(Ask("places_of", {"ids": ids}, PlacedJob))
        return [job for (answer,) in reversed(seen) for job in answer]

    def settle(self, seqs: Sequence[int]) -> Steps[Settled]:
        """In a transaction with an older snapshot, read the keys beside it."""
        if not (yield from is_dated()):
            return (yield from super().settle(seqs))
        return (yield from settle_locked((yield from lock_order_keys_now(seqs)), self.bring_up))

    def admit(self, seqs: Sequence[int], joining: Sequence[JobRow]) -> Steps[list[Place]]:
        """In such a transaction, leave it to `promote`: what waits in a key cannot be read, and locks would last."""
        if joining or not (yield from is_dated()):
            return (yield from super().admit(seqs, joining))
        yield from each("wake_limit_key", [key for key in (yield from keys_now(seqs)) if key["limit_key"] is not None])
        yield from became_ready()
        return []

    def text(self, text: str) -> str:  # noqa: D102
        return clean(text)

    def locked_leases(self, leases: Sequence[Lease]) -> Steps[set[int]]:  # noqa: D102
        given = {
            "seqs": Numbers(sorted({lease.seq for lease in leases})),
            "fences": Numbers(lease.fence for lease in leases),
        }
        held, free = yield from together(Ask("held_seqs", given), Ask("free_seqs", given))
        return {seq for (seq,) in held} - {seq for (seq,) in free}

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:
        """Leave out the changes of jobs in a key that another session has locked."""
        seqs = Numbers(sorted(change.old.seq for change in changes if change.settles))
        if not seqs:
            return changes
        given = {"seqs": seqs}
        ordered, limited, free, admitting = yield from together(
            Ask("order_keys_of", given),
            Ask("limit_keys_of", given),
            Ask("free_order_keys", given),
            Ask("free_limit_keys", given),
        )
        locked = {seq for _, seq in [*ordered, *limited]} - {seq for _, seq in [*free, *admitting]}
        return [change for change in changes if change.old.seq not in locked]

    def _lock_ended(self, state: JobState, seqs: Numbers, keep: int) -> Steps[tuple[Numbers, Numbers]]:
        """Ask once more which jobs are needed: while this waited for a row, a child may have been linked to it."""
        locked, children = yield from super()._lock_ended(state, seqs, keep)
        if not locked:
            return locked, children
        needed = {seq for (seq,) in (yield from rows("needed_parents", seqs=locked))}
        return Numbers(seq for seq in locked if seq not in needed), children

    def page(self, record: type[Record], listing: str, **parameters: Any) -> Steps[list[Record]]:
        """Return a list; ready jobs are looked for lane by lane."""
        if listing != "list_ready":
            return (yield from super().page(record, listing, **parameters))
        lanes = yield from records(Lane, "lanes_of", queue=parameters["queue"], task=parameters["task"])
        if not lanes:
            return []
        start = (parameters["after_turn"], parameters["after_seq"] + 1)
        first = yield from first_ready(lanes, {lane.lane_id: start for lane in lanes}, parameters["limit"])
        return (yield from records(record, listing, seqs=Numbers(place.seq for place in first)))

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:  # noqa: D102
        yield from _fold_counts()
        yield from run("prune_fences", fence=(yield from value("last_fence")), limit=_FOLD)
        yield from super().prune_records(counts=counts, workers=workers)


def _fold_counts() -> Steps[None]:
    """Add counters of past minutes up."""
    found = yield from rows("lock_tallies", limit=_FOLD)
    if not found:
        return
    sums: dict[tuple[int, int], list[int]] = {}
    for _, minute_at, lane_id, *numbers in found:
        known = sums.setdefault((minute_at, lane_id), [0] * len(numbers))
        known[:] = [before + number for before, number in zip(known, numbers, strict=True)]
    counted: list[dict[str, Any]] = [
        {"minute_at": minute_at, "lane_id": lane_id, **dict(zip(_COUNTERS, numbers, strict=True))}
        for (minute_at, lane_id), numbers in sorted(sums.items())
    ]
    yield from each("add_counts", counted)
    yield from run("drop_tallies", tally_ids=Numbers(tally_id for tally_id, *_ in found))
