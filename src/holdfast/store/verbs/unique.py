"""Enqueues jobs with unique keys, and retries them by hand: the holder of a key is decided under the lock of the key.

```text
   take_keys       the keys of this call, missing ones given to its first job with them; other callers wait here
   decide          from the holder's stage and the store's clock, for each job: insert it, or answer with the holder
   hold_keys       keys whose holder no longer holds them
   insert          the jobs that got their keys
   replace         the arguments of waiting holders; one that started meanwhile is decided on again
```

A job's start and end write nothing here: see `model/unique.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import StoreUnavailable, UniqueConflict
from holdfast.model.conditions import Unique, UniqueScope
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.model.unique import Holder, KeyDecision, Stage, decide, may_retry
from holdfast.store.job_rows import JobRow, JobRows, Waiting
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import KeyName, Replacement, TakenKeys, UniqueClaim, UniqueJob, UniqueKey
from holdfast.store.values import Enqueued
from holdfast.store.verbs.job_changes import DECISIONS

if TYPE_CHECKING:
    from holdfast.store.verbs.enqueue import Insert


def are_unique(jobs: Sequence[NewJob]) -> bool:
    """Whether each job has a unique key, no two of them the same, and neither another key nor parents.

    A store may insert these in a shorter way if no job has taken one of the keys, and no id is known.
    """
    keys: set[KeyName] = set()
    for job in jobs:
        unique = unique_of(job)
        if unique is None or parents_of(job) or job.order_key is not None or job.limit_key is not None:
            return False
        keys.add((job.task, unique.key))
    return 0 < len(keys) == len(jobs)


def enqueue_unique(rows: JobRows, jobs: Sequence[NewJob], insert: Insert) -> Steps[list[Enqueued]]:
    """Insert the jobs whose unique keys are free, and those without one; answer the others with the holder's id."""
    answers: dict[int, Enqueued] = {}
    claims = claims_of(jobs)
    for _ in range(DECISIONS):
        taken = yield from rows.take_keys(claims)
        if taken.all_given and not answers:
            return list((yield from insert(jobs)))
        call = _Round(jobs, [index for index in range(len(jobs)) if index not in answers])
        call.decide(taken)
        if call.refusal is not None:
            yield from rows.drop_keys(call.fresh)  # the caller may commit: no key may name a job that never existed
            raise call.refusal
        answers |= call.answers
        if not call.is_open:
            yield from _write(rows, call, insert, answers)
        if len(answers) == len(jobs):
            return [answers[index] for index in range(len(jobs))]
        claims = claims_of([job for index, job in enumerate(jobs) if index not in answers])
    raise StoreUnavailable("jobs with these unique keys changed repeatedly while they were enqueued: try again")


def _write(rows: JobRows, call: _Round, insert: Insert, answers: dict[int, Enqueued]) -> Steps[None]:
    """Insert the jobs of a round, and replace what is to be replaced; add their answers."""
    if call.changed:
        yield from rows.hold_keys(list(call.changed.values()))
    if call.inserting:
        made = yield from insert(list(call.inserting.values()))
        answers |= dict(zip(call.inserting, made, strict=True))
    if call.replacing:
        answers |= yield from _replace(rows, call)


def _replace(rows: JobRows, call: _Round) -> Steps[dict[int, Enqueued]]:
    """Give waiting holders their new arguments. A holder that is not waiting any more is left out of the answers."""
    found = yield from rows.lock(Waiting(list(call.replacing)))
    changes = [_replacement(row, call.jobs[call.replacing[row.id][-1]], found.now) for row in found.rows]
    refused = {change.old.id for change in (yield from rows.replace(found.now, changes))}
    done = {row.id for row in found.rows} - refused
    yield from rows.hold_keys(
        [
            key._replace(holder=key.holder._replace(replaced_by=call.jobs[call.replacing[key.holder.id][-1]].id))
            for key in call.keys.values()
            if key.holder.id in done
        ]
    )
    return {index: job_id for job_id in done for index in call.replacing[job_id]}


def _replacement(row: JobRow, job: NewJob, now: int) -> Replacement:
    due = due_at(job, now)
    state = JobState.SCHEDULED if due > now else JobState.READY
    turn = turn_of(due, row.priority)
    if row.state is JobState.BLOCKED:
        return Replacement(row, row._replace(turn=turn), job.payload)
    return Replacement(row, row._replace(state=state, turn=turn, retrying=False), job.payload)


class _Round:
    """One look at the keys of a call, and what follows for each of its jobs, in the order of the call."""

    def __init__(self, jobs: Sequence[NewJob], pending: Sequence[int]) -> None:
        self.jobs = jobs
        self.pending = pending
        self.answers: dict[int, Enqueued] = {}
        self.inserting: dict[int, NewJob] = {}
        self.replacing: dict[str, list[int]] = {}
        self.keys: dict[KeyName, UniqueKey] = {}
        self.changed: dict[KeyName, UniqueKey] = {}
        self.fresh: list[UniqueKey] = []
        self.refusal: UniqueConflict | None = None
        self.is_open = False
        """Whether no job has taken one of the keys: the only claim for it was that of a known job.

        The next round takes it; nothing is written before, so that jobs are inserted in the order of the call.
        """
        self._by_id: dict[str, int] = {}
        self._now = 0

    def decide(self, taken: TakenKeys) -> None:
        """Decide on every job. Within a call, a job finds the keys as the jobs before it leave them."""
        self._now, self.keys = taken.now, taken.keys
        ids = {self.jobs[index].id for index in self.pending} - taken.known
        known = {index for index in self.pending if self.jobs[index].id in taken.known and unique_of(self.jobs[index])}
        self.is_open = any(
            (job.task, unique.key) not in taken.keys
            for index in self.pending
            if index not in known and (unique := unique_of(job := self.jobs[index])) is not None
        )
        if self.is_open:
            self.answers = dict.fromkeys(known, False)
            return
        self.fresh = [key for key in taken.keys.values() if key.holder.id in ids]
        for index in self.pending:
            job, unique = self.jobs[index], unique_of(self.jobs[index])
            if unique is None:
                self.inserting[index] = job
            elif index in known:
                self.answers[index] = False
            else:
                self._decide(index, job, unique, self.keys[job.task, unique.key])

    def _decide(self, index: int, job: NewJob, unique: Unique, key: UniqueKey) -> None:
        holder = key.holder
        if holder.id == job.id:
            self._insert(index, job, unique, key)
            return
        match decide(job.id, unique, holder, self._now):
            case KeyDecision.TAKE:
                self._insert(index, job, unique, key)
            case KeyDecision.KEEP:
                self.answers[index] = holder.id
            case KeyDecision.REFUSE:
                self.refusal = self.refusal or UniqueConflict(holder.id, job.task, unique.key)
            case KeyDecision.REPLACE if holder.id in self._by_id:
                first = self._by_id[holder.id]
                self.inserting[first] = msgspec.structs.replace(
                    self.inserting[first], payload=job.payload, delay=job.delay, run_at=job.run_at
                )
                self._hold(key._replace(holder=holder._replace(replaced_by=job.id)))
                self.answers[index] = holder.id
            case KeyDecision.REPLACE:
                self.replacing.setdefault(holder.id, []).append(index)

    def _insert(self, index: int, job: NewJob, unique: Unique, key: UniqueKey) -> None:
        self.inserting[index] = job
        self._by_id.setdefault(job.id, index)
        holder = Holder(job.id, unique.scope, _until(unique, self._now), Stage.WAITING)
        if key.holder.id == job.id:  # the key was missing, and was given to this job
            self.keys[key.name] = key._replace(holder=holder)
        else:
            self._hold(key._replace(holder=holder))

    def _hold(self, key: UniqueKey) -> None:
        self.keys[key.name] = self.changed[key.name] = key


def claims_of(jobs: Sequence[NewJob]) -> list[UniqueClaim]:
    """Return the keys that the jobs are to have, of those that have one."""
    return [
        UniqueClaim(
            job.task, unique.key, job.id, unique.scope, None if unique.period is None else span_micros(unique.period)
        )
        for job in jobs
        if job.conditions is not None and (unique := job.conditions.unique) is not None
    ]


def _until(unique: Unique, now: int) -> int | None:
    return None if unique.period is None else now + span_micros(unique.period)


def take_back(rows: JobRows, jobs: Sequence[JobRow]) -> Steps[dict[str, UniqueConflict]]:
    """Give ended jobs that are to run again their unique keys; return a conflict, by id, for each that cannot run.

    Of several jobs with one key, the first gets it. A key that is held for a period counts from the enqueue: the job
    neither needs it nor takes it.
    """
    recorded = {
        job.id: job for job in (yield from rows.page(UniqueJob, "unique_among", seqs=[job.seq for job in jobs]))
    }
    claims = [
        UniqueClaim(unique.task, unique.unique_key, unique.id, UniqueScope(unique.unique_scope), None)
        for job in jobs
        if (unique := recorded.get(job.id)) is not None and unique.unique_scope != UniqueScope.PERIOD
    ]
    if not claims:
        return {}
    taken = yield from _take_all(rows, claims)
    if taken.all_given:
        return {}
    conflicts: dict[str, UniqueConflict] = {}
    keys, changed = dict(taken.keys), dict[KeyName, UniqueKey]()
    for claim in claims:
        key = keys[claim.name]
        if not may_retry(claim.id, key.holder, taken.now):
            conflicts[claim.id] = UniqueConflict(key.holder.id, claim.task, claim.unique_key, retried=claim.id)
            continue
        keys[claim.name] = key._replace(holder=Holder(claim.id, claim.unique_scope, None, Stage.WAITING))
        if key.holder.id != claim.id:
            changed[claim.name] = keys[claim.name]
    yield from rows.hold_keys(list(changed.values()))
    return conflicts


def _take_all(rows: JobRows, claims: Sequence[UniqueClaim]) -> Steps[TakenKeys]:
    """Take the keys of ended jobs. One that another transaction deletes before it can be locked is taken again."""
    for _ in range(DECISIONS):
        taken = yield from rows.take_keys(claims, again=True)
        if taken.all_given or all(claim.name in taken.keys for claim in claims):
            return taken
    raise StoreUnavailable("unique keys changed repeatedly while jobs were to take them back: try again")
