"""Complete jobs: in one trip for a whole batch, or row by row.

The quick way moves the rows of each claim and proves by the numbers of changed rows that all leases were held and none
of the jobs is followed; otherwise the trip fails before its commit, and nothing has happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.mysql.execute import final
from holdfast.backends.mysql.verbs.ranges import ranges
from holdfast.backends.mysql.verbs.snapshots import held_now
from holdfast.backends.sql.steps import Ask, Each, Numbers, records, together
from holdfast.model.job import Lease
from holdfast.model.outcome import Completed
from holdfast.store.job_rows import CompletedRows, Key
from holdfast.store.steps import Steps
from holdfast.store.values import Finish


class _LockedLease(NamedTuple):
    """A locked lease."""

    seq: int
    fence: int
    lane_id: int
    worker_id: str
    attempt: int
    started_at: int
    followed: int


def is_plain(finishes: Sequence[Finish]) -> bool:
    """Whether all of these complete their jobs without a result."""
    return all(type(item.outcome) is Completed and item.outcome.result is None for item in finishes)


def complete_plainly(finishes: Sequence[Finish]) -> Steps[None]:
    """Complete jobs without results, all or none: fails (`is_refused`) if a lease is stale or a job is followed."""
    lots: defaultdict[int, set[int]] = defaultdict(set)
    for item in finishes:
        lots[item.lease.fence].add(item.lease.seq)
    asks: list[Ask | Each] = []
    for fence, seqs in sorted(lots.items()):
        listed = sorted(seqs)
        parts = ranges(listed)
        for part in parts or ():
            stretch = {**part._asdict(), "fence": fence}
            counted = {**stretch, "count": part.size}
            asks += [Ask("complete_range", counted), Ask("all_changed", {"count": part.size})]
            asks += [Ask("count_completed_range", stretch), Ask("leave_range", counted)]
            asks.append(Ask("all_changed", {"count": part.size}))
        if parts is None:
            lot = {"seqs": Numbers(listed), "fence": fence}
            asks += [Ask("complete_listed", lot), Ask("all_changed", {"count": len(listed)})]
            asks += [Ask("count_completed_listed", lot), Ask("leave_listed", lot)]
            asks.append(Ask("all_changed", {"count": len(listed)}))
    yield from final(*asks)


def complete_held(lease: Lease, result: str | None) -> Steps[None]:
    """Complete a job whose lease is locked, and commit; fails (`is_refused`) if it is followed: nothing is written."""
    held = {"seq": lease.seq, "fence": lease.fence}
    yield from final(
        Ask("complete_held", {**held, "result": result}),
        Ask("all_changed", {"count": 1}),
        Ask("count_completed_held", held),
        Ask("leave_held", held),
    )


def complete_all(finishes: Sequence[Finish]) -> Steps[CompletedRows]:
    """Complete the jobs whose leases are held."""
    wanted: dict[Key, Finish] = {(item.lease.seq, item.lease.fence): item for item in reversed(finishes)}
    fences = Numbers(fence for _, fence in wanted)
    # A job once, whose stale lease is given with its current one.
    seqs = yield from held_now(sorted({seq for seq, _ in wanted}), fences)
    found = (yield from records(_LockedLease, "held_among", seqs=seqs, fences=fences)) if seqs else []
    held = [row for row in found if (row.seq, row.fence) in wanted]
    if held:
        yield from together(*_writes(held, wanted))
    refused = wanted.keys() - {(row.seq, row.fence) for row in held}
    return CompletedRows(refused, [row.seq for row in held if row.followed])


def _writes(held: Sequence[_LockedLease], wanted: dict[Key, Finish]) -> Sequence[Each]:
    completed: list[dict[str, object]] = []
    lots: defaultdict[int, list[int]] = defaultdict(list)
    for row in held:
        outcome = wanted[row.seq, row.fence].outcome
        result = outcome.result if isinstance(outcome, Completed) else None
        completed.append({**row._asdict(), "result": result})
        lots[row.lane_id].append(row.started_at)
    counted = [
        {"lane_id": lane_id, "completed": len(starts), "started": sum(starts)} for lane_id, starts in lots.items()
    ]
    gone = [{"seq": row.seq} for row in held]
    return Each("put_completed", completed), Each("leave_running", gone), Each("count_completed", counted)
