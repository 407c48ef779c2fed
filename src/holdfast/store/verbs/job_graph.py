"""The parents of a job, and the graph that it belongs to; reads only."""

from __future__ import annotations

from holdfast.model.job import JobState
from holdfast.store.job_lists import GraphRow, ListedJob, ParentLink, SeenJob
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import GraphJob, JobGraph
from holdfast.store.verbs.job_admin import not_found


def parents(rows: JobRows, seq: int) -> Steps[list[SeenJob]]:
    """Return the states and results of a job's parents."""
    return (yield from rows.page(SeenJob, "parents_seen", seq=seq))


def graph(rows: JobRows, job_id: str, limit: int) -> Steps[JobGraph]:
    """Return the jobs that are connected with this one, link by link, until there are none or `limit` is reached."""
    found = yield from rows.page(ListedJob, "job_view", id=job_id)
    if not found:
        raise not_found(job_id)
    reached = {found[0].seq: None}  # in the order in which they are reached
    links: dict[tuple[int, int], None] = {}
    edge = sorted(reached)
    while edge and len(reached) <= limit:
        for link in (yield from rows.page(ParentLink, "links_of", seqs=edge)):
            links[link.child_seq, link.parent_seq] = None
        edge = sorted({seq for link in links for seq in link} - reached.keys())[: limit + 1]
        reached |= dict.fromkeys(edge)
    shown = list(reached)[:limit]
    jobs = {row.seq: row for row in (yield from rows.page(GraphRow, "graph_jobs", seqs=sorted(shown)))}
    return JobGraph(
        [
            GraphJob(
                id=row.id,
                seq=row.seq,
                queue=row.queue,
                task=row.task,
                state=JobState(row.state),
                parents=[jobs[parent].id for child, parent in links if child == row.seq and parent in jobs],
            )
            for row in (jobs[seq] for seq in sorted(jobs))
        ],
        is_cut=len(reached) > limit,
    )
