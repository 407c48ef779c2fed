"""`JobRows` on SQL: rows are locked, decided on by the rules, and moved between the tables of their states.

Every verb takes its locks in the same order, so that no two verbs deadlock: first rows of jobs, those of several leases
by seq; then order keys, by queue and key; then the jobs that wait in them; then limit keys, by lane and key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

from holdfast.backends.sql import limit_keys, unique_keys
from holdfast.backends.sql.job_columns import COUNTERS
from holdfast.backends.sql.job_writes import write_changes
from holdfast.backends.sql.order_keys import Settled, bring_up, settle
from holdfast.backends.sql.parents import PlacedJob, add_links, record_changes
from holdfast.backends.sql.steps import Ask, Numbers, each, records, rows, run, together
from holdfast.errors import StoreUnavailable
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease
from holdfast.model.lease_rules import longest_covered
from holdfast.model.steady_clock import Steady
from holdfast.store.job_rows import (
    ById,
    ByIds,
    ByLeases,
    Change,
    CompletedRows,
    Expired,
    JobRow,
    Key,
    Locked,
    NewLink,
    OfWorker,
    Record,
    Selection,
    Waiting,
    WaitingChildren,
)
from holdfast.store.steps import Place, Steps, became_ready
from holdfast.store.unique_keys import Replacement, TakenKeys, UniqueClaim, UniqueKey
from holdfast.store.values import Finish

DUE: Sequence[str] = (
    "run_at",
    "seq",
    "lane_id",
    "turn",
    *COUNTERS,
    "followed",
    "is_limited",
)  # the columns of `due_jobs`
_ANY_AGE = -(10**15)  # microseconds: also jobs that ended before a step back of the clock
_LOOKS = 50  # attempts to lock a job that moves to another table between the search and the lock


class EndedLease(NamedTuple):
    """The outcome that the holder of a lease has written (`ended`)."""

    seq: int
    fence: int
    outcome: str


class SqlJobRows(ABC):
    """Code shared by all dialects. Each adds its hot path `complete`, and may replace `promote` and `bring_up`."""

    def __init__(self, steady: Steady | None = None) -> None:
        self.steady = steady

    @abstractmethod
    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:
        """See the port."""

    def promote(self, limit: int) -> Steps[int]:  # noqa: D102 - the port states the contracts
        due = [dict(zip(DUE, row, strict=True)) for row in (yield from rows("due_jobs", limit=limit))]
        plain = [job for job in due if not job["is_limited"]]
        yield from each("leave_scheduled", plain)
        yield from each("put_ready", plain)
        places = [(job["lane_id"], job["turn"], job["seq"]) for job in plain]
        yield from became_ready(places)
        return len(places) + (yield from self.admit_due([job for job in due if job["is_limited"]], limit))

    def admit_due(self, due: Sequence[dict[str, Any]], limit: int) -> Steps[int]:
        """Put due jobs into their limit keys, and look at keys whose time has come; return how many jobs moved."""
        moved = (yield from limit_keys.admit_due(due)) if due else 0
        yield from self.fill_keys(limit)
        return moved

    def fill_keys(self, limit: int) -> Steps[int]:  # noqa: D102
        woken = [key_id for (key_id,) in (yield from rows("woken_keys", limit=limit))]
        yield from became_ready((yield from limit_keys.fill(woken)))
        return len(woken)

    def bring_up(self, key_ids: Sequence[int]) -> Steps[Sequence[Place]]:
        """Make the first waiting job of each locked order key without a head its head; return those now ready."""
        return (yield from bring_up(key_ids))

    def settle(self, seqs: Sequence[int]) -> Steps[Settled]:
        """See `order_keys.settle`."""
        return (yield from settle(seqs, self.bring_up))

    def admit(self, seqs: Sequence[int], joining: Sequence[JobRow]) -> Steps[list[Place]]:
        """See `limit_keys.admit`."""
        return (yield from limit_keys.admit(seqs, joining))

    def places(self, ids: Sequence[str]) -> Steps[Sequence[PlacedJob]]:
        """Return where jobs are found in the tables of their states."""
        return (yield from records(PlacedJob, "places_of", ids=ids))

    def text(self, text: str) -> str:
        """Return a human-readable text in a form that the dialect can store."""
        return text

    def lock(self, selection: Selection) -> Steps[Locked]:  # noqa: D102
        match selection:
            case ByLeases(leases):
                ordered = sorted((lease.seq, lease.fence) for lease in leases)
                seqs, fences = Numbers(seq for seq, _ in ordered), Numbers(fence for _, fence in ordered)
                found = yield from records(JobRow, "lock_leases", seqs=seqs, fences=fences)
                wanted = set(ordered)
                # Once each: a job may be asked for under several fences, of which one is held.
                found = list({row.seq: row for row in found if (row.seq, row.fence) in wanted}.values())
            case OfWorker(worker_id, limit):
                found = yield from records(JobRow, "lock_of_worker", worker_id=worker_id, limit=limit)
            case Expired(access, limit):
                found = yield from records(JobRow, "lock_expired", longest=longest_covered(access), limit=limit)
            case WaitingChildren(seqs):
                found = yield from records(JobRow, "lock_children", seqs=Numbers(seqs))
            case ById(job_id):
                found = yield from self._lock_job(job_id)
            case ByIds(job_ids):
                found = yield from self._lock_jobs(job_ids)
            case Waiting(job_ids):
                known = [job_id for (job_id,) in (yield from rows("ids_by_seq", ids=list(job_ids)))]
                answers = yield from together(*(Ask("lock_waiting", {"id": job_id}, JobRow) for job_id in known))
                found = [row for (row,) in answers if row.state]
        return locked(found)

    def _lock_job(self, job_id: str) -> Steps[list[JobRow]]:
        for _ in range(_LOOKS):
            found = yield from records(JobRow, "lock_job", id=job_id)
            if not found or found[0].state:  # None if the job moved to another table meanwhile
                return found
        raise StoreUnavailable(f"job {job_id} changes state faster than it can be locked: try again")

    def _lock_jobs(self, job_ids: Sequence[str]) -> Steps[list[JobRow]]:
        ordered = [job_id for (job_id,) in (yield from rows("ids_by_seq", ids=list(job_ids)))]
        answers = yield from together(*(Ask("lock_job", {"id": job_id}, JobRow) for job_id in ordered))
        found: list[JobRow] = []
        for job_id, answer in zip(ordered, answers, strict=True):
            is_moved = bool(answer) and not answer[0].state
            found += (yield from self._lock_job(job_id)) if is_moved else answer
        return found

    def write(self, now: int, changes: Sequence[Change], heads: Sequence[int] = ()) -> Steps[list[Change]]:  # noqa: D102
        ready = yield from write_changes(now, changes, self.text)
        ended = [change.old.seq for change in changes if change.settles]
        changed = {change.old.seq for change in changes if change.concerns_children}
        if ended or heads:
            places, parents, limited = yield from self.settle([*ended, *heads])
            ready += places
            if limited:
                ready += yield from self.admit(
                    sorted(limited), [change.new for change in changes if change.joins_limit_key]
                )
            # A job in a key is followed in any case; only this shows whether it has children.
            changed = {seq for seq in changed if seq not in ended or seq in parents} | (parents & set(heads))
        if changed:
            yield from record_changes(sorted(changed))
        workers = sorted({str(change.old.worker_id) for change in changes if change.clears_isolation})
        if workers:
            yield from run("clear_isolation", worker_ids=workers)
        if ready:
            yield from became_ready(ready)
        return []

    def take_keys(self, claims: Sequence[UniqueClaim], *, again: bool = False) -> Steps[TakenKeys]:  # noqa: D102
        return (yield from unique_keys.take_keys(claims, lambda wanted: self.add_keys(wanted, again=again)))

    @abstractmethod
    def add_keys(self, claims: Sequence[UniqueClaim], *, again: bool) -> Steps[int]:
        """Add the keys that are missing, in this order; return how many.

        Leaves out claims of jobs that exist, unless `again`. Waits for a transaction that has added one of the keys.
        """

    def hold_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:  # noqa: D102
        yield from unique_keys.hold_keys(keys)

    def drop_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:  # noqa: D102
        yield from unique_keys.drop_keys(keys)

    def replace(self, now: int, replacements: Sequence[Replacement]) -> Steps[list[Replacement]]:  # noqa: D102
        yield from unique_keys.set_arguments(replacements)
        moved = [Change(old, new) for old, new, _ in replacements if old.state is not JobState.BLOCKED]
        yield from self.write(now, moved)
        return []

    def prune_keys(self, limit: int) -> Steps[None]:  # noqa: D102
        yield from unique_keys.prune_keys(limit)

    def ended(self, leases: Sequence[Lease]) -> Steps[dict[Key, str]]:  # noqa: D102
        seqs, fences = Numbers(lease.seq for lease in leases), Numbers(lease.fence for lease in leases)
        found = yield from records(EndedLease, "ended", seqs=seqs, fences=fences)
        return {(row.seq, row.fence): row.outcome for row in found}

    def locked_leases(self, leases: Sequence[Lease]) -> Steps[set[int]]:  # noqa: ARG002, D102
        yield from ()
        return set()

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:  # noqa: D102
        yield from ()
        return changes

    def page(self, record: type[Record], listing: str, **parameters: object) -> Steps[list[Record]]:  # noqa: D102
        return (yield from records(record, listing, **parameters))

    def act(self, action: str, **parameters: object) -> Steps[bool]:  # noqa: D102
        kept = {name: self.text(value) if isinstance(value, str) else value for name, value in parameters.items()}
        changed = yield from run(action, **kept)
        if action in {"resume", "resume_task"}:
            yield from became_ready()
        return changed

    def link(self, links: Sequence[NewLink], inserted: Sequence[str], decide: Sequence[str]) -> Steps[None]:  # noqa: D102
        ids = {job_id for link in links for job_id in (link.child_id, link.parent_id)}
        if ids:
            yield from add_links((yield from self.places(sorted(ids))), links, inserted, decide)

    def prune(self, state: JobState, keep: timedelta, limit: int) -> Steps[int]:  # noqa: D102
        span = span_micros(keep)
        old = Numbers(seq for (seq,) in (yield from rows(f"old_{state}", keep=span, limit=limit)))
        if not old:
            return 0
        # Between the two statements another process may have pruned some jobs, or an operator may have retried one.
        locked, children = yield from self._lock_ended(state, old, span)
        if len(locked) < len(old):
            yield from self.detach(state, locked)
        yield from _delete(state, locked, children)
        return len(locked)

    def delete(self, ended: Sequence[JobRow]) -> Steps[list[JobRow]]:  # noqa: D102
        deleted: set[int] = set()
        for state in sorted({job.state for job in ended}):
            seqs = Numbers(sorted(job.seq for job in ended if job.state is state))
            locked, children = yield from self._lock_ended(state, seqs, _ANY_AGE)
            yield from self.detach(state, locked)
            yield from _delete(state, locked, children)
            deleted.update(locked)
        return [job for job in ended if job.seq not in deleted]

    def detach(self, state: JobState, seqs: Numbers) -> Steps[None]:  # noqa: ARG002 - a dialect may need them
        """Prepare jobs for a deletion in an order other than that of `prune`."""
        yield from ()

    def _lock_ended(self, state: JobState, seqs: Numbers, keep: int) -> Steps[tuple[Numbers, Numbers]]:
        """Lock ended jobs that no unfinished child needs; return their seqs, and those of them that have parents."""
        found = yield from rows(f"lock_{state}", seqs=seqs, keep=keep)
        return Numbers(seq for seq, _ in found), Numbers(seq for seq, is_child in found if is_child)

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:  # noqa: D102
        if counts is not None:
            yield from run("prune_counts", keep=span_micros(counts))
        yield from run("prune_workers", keep=span_micros(workers))


def _delete(state: JobState, seqs: Numbers, children: Numbers) -> Steps[None]:
    """Delete locked jobs with all that belongs to them."""
    if children:
        yield Ask("prune_links", {"seqs": children})
    yield from unique_keys.drop_keys_of(seqs)
    for statement in (f"prune_{state}", "prune_attempts", "prune_jobs"):
        yield Ask(statement, {"seqs": seqs})


def locked(found: Sequence[JobRow]) -> Locked:
    """Return rows of the lock statements with the types of the port: a dialect may have no truth values."""
    now = max((cast("int", row.token) for row in found), default=0)
    return Locked(now, [_typed(row) for row in found])


def _typed(row: JobRow) -> JobRow:
    return row._replace(
        state=JobState(row.state),
        followed=bool(row.followed),
        retrying=bool(row.retrying),
        isolated=bool(row.isolated),
        cancel_asked=bool(row.cancel_asked),
    )
