"""The links between children and parents, and the records of parents whose children are to be decided again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.sql.steps import each
from holdfast.model.turn import run_at_of
from holdfast.store.job_rows import NewLink
from holdfast.store.steps import Steps, became_ready


class PlacedJob(NamedTuple):
    """A job with the columns by which the tables of its states find it (`places_of`)."""

    id: str
    seq: int
    lane_id: int
    turn: int
    priority: int


def record_changes(seqs: Sequence[int]) -> Steps[None]:
    """Record that the children of these jobs, or these jobs themselves, are to be decided again."""
    yield from each("record_change", [{"seq": seq} for seq in seqs])
    yield from became_ready(parents_changed=True)


def add_links(
    found: Sequence[PlacedJob], links: Sequence[NewLink], inserted: Sequence[str], decide: Sequence[str]
) -> Steps[None]:
    """See `JobRows.link`. The number of statements does not depend on that of the jobs."""
    jobs = {job.id: job for job in found}
    yield from each(
        "add_link",
        [
            {
                "child_seq": jobs[link.child_id].seq,
                "place": link.place,
                "parent_seq": jobs[link.parent_id].seq,
                "run_anyway": link.run_anyway,
            }
            for link in links
        ],
    )
    # New and still uncommitted, a parent is ready, scheduled or blocked; in the other tables it is not found.
    parents = [jobs[job_id] for job_id in inserted]
    yield from each("follow_blocked", [{"seq": job.seq} for job in parents])
    yield from each("follow_ready", [{"lane_id": job.lane_id, "turn": job.turn, "seq": job.seq} for job in parents])
    yield from each(
        "follow_scheduled", [{"run_at": run_at_of(job.turn, job.priority), "seq": job.seq} for job in parents]
    )
    if decide:
        yield from record_changes([jobs[job_id].seq for job_id in decide])
