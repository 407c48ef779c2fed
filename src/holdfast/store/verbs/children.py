"""Jobs that wait for parents: their enqueue, and the step that releases or cancels them.

```text
   enqueue of a child     locks its parents, marks them as followed, links the child: blocked
   end of a parent        if it is followed: recorded in the same transaction, without a lock on any child
   `settle`               takes such records, reads the states of all parents of the children, and decides
```

Either the enqueue sees that a parent has ended, or the parent's end sees the mark. `settle` may be repeated: it reads
states and counts nothing. A process that stops before it leaves the record for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import JobNotFound, StoreUnavailable, UniqueConflict
from holdfast.model.budget import Counters, after_retry
from holdfast.model.graph import (
    ChildMove,
    ParentStates,
    check_acyclic,
    move_of,
    reason_of,
    reason_of_conflict,
    states_of,
)
from holdfast.model.job import JobState, NewJob, parents_of
from holdfast.store.job_lists import ChangedParent, UnsettledChild
from holdfast.store.job_rows import ENDED, ByIds, Change, JobRow, JobRows, NewLink, WaitingChildren
from holdfast.store.steps import Steps
from holdfast.store.values import Enqueued
from holdfast.store.verbs.job_changes import DECISIONS, to_cancelled
from holdfast.store.verbs.unique import take_back

Insertion = Callable[[Sequence[NewJob]], Steps[Sequence[Enqueued]]]
_NAMED = 3  # missing parents that an error names


class Settled(NamedTuple):
    """How many children `settle` has released or cancelled, and whether there may be more to do."""

    moved: int
    has_more: bool


def enqueue_children(rows: JobRows, jobs: Sequence[NewJob], insert: Insertion) -> Steps[Sequence[Enqueued]]:
    """Insert jobs of which some have parents, in the store or in the same call.

    Raises `JobNotFound` for a parent that does not exist, and `ConfigError` for a cycle.
    """
    after = {job.id: parents_of(job) for job in jobs if parents_of(job)}
    check_acyclic(after)
    wanted = list(dict.fromkeys(parent_id for parents in after.values() for parent_id in parents))
    given = {job.id for job in jobs}
    known = yield from _follow(rows, wanted)
    _refuse_missing(parent_id for parent_id in wanted if parent_id not in known and parent_id not in given)

    def states(job: NewJob) -> ParentStates:
        parents = [known[each].state if each in known else JobState.READY for each in parents_of(job)]
        return states_of(parents, run_anyway=_runs_anyway(job))

    waits = {job.id for job in jobs if parents_of(job) and move_of(states(job)) is not ChildMove.RUN}
    answers = yield from insert([job if job.id in waits else _without_parents(job) for job in jobs])
    inserted = {job.id for job, answer in zip(jobs, answers, strict=True) if answer is True}
    # Instead of a parent of this call, its unique key may have kept another job.
    kept = {job.id: answer for job, answer in zip(jobs, answers, strict=True) if isinstance(answer, str)}
    # Another call may have inserted a parent between the two steps.
    late = {kept.get(each, each): each for each in wanted if each not in known and each not in inserted}
    followed = yield from _follow(rows, list(late))
    known |= {late[job_id]: row for job_id, row in followed.items()} | followed
    _refuse_missing(parent_id for parent_id in wanted if parent_id not in known and parent_id not in inserted)
    children = [job for job in jobs if job.id in inserted and parents_of(job)]
    links = [
        NewLink(job.id, place, kept.get(parent_id, parent_id), _runs_anyway(job))
        for job in {job.id: job for job in reversed(children)}.values()
        for place, parent_id in enumerate(parents_of(job))
    ]
    decide = [job.id for job in children if job.id in waits and move_of(states(job)) is not ChildMove.WAIT]
    parents = {link.parent_id for link in links}  # without those whose children another job was kept instead of
    yield from rows.link(links, [each for each in wanted if each in inserted and each in parents], decide)
    return answers


def _runs_anyway(job: NewJob) -> bool:
    return job.conditions is not None and job.conditions.run_anyway


def _without_parents(job: NewJob) -> NewJob:
    """Return the job as the store inserts it if it need not wait; also for a job that never had parents."""
    if not parents_of(job) or job.conditions is None:
        return job
    return msgspec.structs.replace(job, conditions=msgspec.structs.replace(job.conditions, after=()))


def _refuse_missing(missing: Iterable[str]) -> None:
    unknown = list(missing)
    if unknown:
        named = ", ".join(unknown[:_NAMED]) + (f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else "")
        remedy = "pass only jobs of the same call or of the store, and raise the retention if they are pruned too soon"
        raise JobNotFound(f"`after` names jobs that do not exist: {named}; they never existed or were pruned: {remedy}")


def _follow(rows: JobRows, parent_ids: Sequence[str]) -> Steps[dict[str, JobRow]]:
    """Lock parents and mark those that have not ended; return those that exist."""
    known: dict[str, JobRow] = {}
    left = list(parent_ids)
    for _ in range(DECISIONS):
        if not left:
            return known
        found = yield from rows.lock(ByIds(left))
        known |= {row.id: row for row in found.rows}
        # Also if it is marked already: then a transaction with an older snapshot that ends the parent is rolled back.
        unfinished = [row for row in found.rows if row.state not in ENDED]
        marks = [Change(row, row._replace(followed=True), only_follows=True) for row in unfinished]
        left = [change.old.id for change in (yield from rows.write(found.now, marks))] if marks else []
    raise StoreUnavailable("jobs changed repeatedly while a job was enqueued after them: try again")


def settle(rows: JobRows, limit: int) -> Steps[Settled]:
    """Decide on the children of at most `limit` jobs that have ended or run again; on at most `limit` children.

    The rows of one call are locked in the order of their seqs. Another call does the rest.
    """
    changed = yield from rows.page(ChangedParent, "changed_parents", limit=limit)
    if not changed:
        return Settled(0, has_more=False)
    seqs = sorted({record.seq for record in changed})
    found = yield from rows.page(UnsettledChild, "unsettled_children", seqs=seqs, limit=limit)
    # Those that are to run again need their unique keys, which are locked before rows of waiting jobs: a call for them.
    children = [child for child in found if not child.is_blocked] or found
    changes = (yield from _decide(rows, {child.seq: child for child in children})) if children else []
    # A child that is missing was changed by another transaction since it was read: it is read again.
    is_done = len(found) < limit and len(changes) == len(found)
    if is_done:
        yield from rows.act("forget_changes", change_ids=[record.change_id for record in changed])
    cascades = any(change.concerns_children for change in changes)
    return Settled(len(changes), has_more=cascades or not is_done or len(changed) >= limit)


def _decide(rows: JobRows, children: Mapping[int, UnsettledChild]) -> Steps[list[Change]]:
    """Move children that are still as they were read; return what was written."""
    locked = yield from rows.lock(WaitingChildren(sorted(children)))
    unchanged = [row for row in locked.rows if (row.state is JobState.BLOCKED) == bool(children[row.seq].is_blocked)]
    ended = [row for row in unchanged if row.state in ENDED]
    conflicts = (yield from take_back(rows, ended)) if ended else {}
    changes = [
        _kept(row, conflicts[row.id]) if row.id in conflicts else _moved(row, locked.now, children[row.seq])
        for row in unchanged
    ]
    refused = yield from rows.write(locked.now, changes)
    return [change for change in changes if change not in refused]


def _kept(row: JobRow, conflict: UniqueConflict) -> Change:
    """Leave a child cancelled, for good: from now on only an operator can let it run."""
    return Change(row, row._replace(reason=reason_of_conflict(conflict.job_id, conflict.unique_key)), is_mended=True)


def _moved(row: JobRow, now: int, child: UnsettledChild) -> Change:
    """Decide on a locked child: blocked by its parents, or cancelled because of one of them."""
    states = ParentStates(bool(child.unfinished), child.broken_seq is not None, bool(child.run_anyway))
    move = move_of(states)
    if row.state is JobState.BLOCKED:
        if move is ChildMove.CANCEL:
            reason = reason_of(child.broken_id, child.broken_state)
            return to_cancelled(row, now, reason, None)._replace(broken_by=child.broken_seq)
        return Change(row, row._replace(state=_free_state(row, now)))
    counters = after_retry(Counters(attempt=row.attempt, lost=row.lost))
    again = row._replace(
        attempt=counters.attempt,
        excused=counters.excused,
        interrupted=counters.interrupted,
        lost=counters.lost,
        followed=True,  # by now it may have children, which this step has not locked
    )
    if move is ChildMove.WAIT:
        return Change(row, again._replace(state=JobState.BLOCKED), waits=True, is_mended=True)
    return Change(row, again._replace(state=_free_state(row, now)), is_mended=True)


def _free_state(row: JobRow, now: int) -> JobState:
    """Return the state of a job whose parents have ended; one with an order key joins it."""
    if row.order_key is not None:
        return JobState.BLOCKED
    return JobState.READY if row.run_at <= now else JobState.SCHEDULED
