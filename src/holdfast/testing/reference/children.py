"""Jobs that wait for parents, in the reference model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from holdfast.errors import JobNotFound, UniqueConflict
from holdfast.model.budget import after_retry
from holdfast.model.graph import ChildMove, check_acyclic, move_of, reason_of, reason_of_conflict, states_of
from holdfast.model.job import JobState, NewJob, parents_of
from holdfast.testing.reference.records import ReferenceJob, ReferenceState


class ReferenceChildren(ReferenceState):
    """The decisions on children. With `settles_at_once` False, they are left to `promote`."""

    settles_at_once = True
    waiting_ids: Collection[str] = ()
    """The jobs of the current call that are to wait for their parents."""

    @abstractmethod
    def set_cancelled(self, record: ReferenceJob, reason: str) -> None:
        """Move the job to cancelled."""

    @abstractmethod
    def settle_keys(self) -> None:
        """Fill every limit key whose members a verb has changed."""

    @abstractmethod
    def take_key_back(self, record: ReferenceJob) -> None:
        """Give an ended job its unique key again; raises `UniqueConflict` if another job holds it."""

    def waiting(self, jobs: Sequence[NewJob]) -> set[str]:
        """Return those jobs of a call that are to wait for their parents, in the store or in the call.

        Raises `JobNotFound` for a parent that does not exist, and `ConfigError` for a cycle.
        """
        check_acyclic({job.id: parents_of(job) for job in jobs})
        given = {job.id for job in jobs}
        for job in jobs:
            for parent_id in parents_of(job):
                if parent_id not in self.records and parent_id not in given:
                    message = f"no job {parent_id}"
                    raise JobNotFound(message)
        return {job.id for job in jobs if parents_of(job) and self._move_of_new(job) is not ChildMove.RUN}

    def _move_of_new(self, job: NewJob) -> ChildMove:
        known = [self.records.get(parent_id) for parent_id in parents_of(job)]
        states = [JobState.READY if parent is None else parent.state for parent in known]
        run_anyway = job.conditions is not None and job.conditions.run_anyway
        return move_of(states_of(states, run_anyway=run_anyway))

    def _parents(self, record: ReferenceJob) -> list[JobState | None]:
        found = [self.records.get(parent_id) for parent_id in parents_of(record.new)]
        return [None if parent is None else parent.state for parent in found]

    def move(self, record: ReferenceJob) -> ChildMove:
        """Decide on a child by the states of its parents."""
        conditions = record.new.conditions
        run_anyway = conditions is not None and conditions.run_anyway
        return move_of(states_of(self._parents(record), run_anyway=run_anyway))

    def has_unfinished_parents(self, record: ReferenceJob) -> bool:
        """Whether a parent has not ended."""
        return states_of(self._parents(record), run_anyway=False).unfinished

    def is_needed(self, record: ReferenceJob) -> bool:
        """Whether a child of the job has not ended."""
        return any(record.new.id in parents_of(child.new) for child in self.records.values() if not child.is_final)

    def forget_parent(self, job_id: str) -> None:
        """Let nothing revive the children of a job that is deleted: a later job with its id is another job."""
        for record in self.records.values():
            if job_id in parents_of(record.new):
                record.is_broken = False

    def settle_children(self) -> None:
        """Decide on all children after a verb, as a store does in a separate transaction."""
        self.settle_keys()
        if self.settles_at_once:
            self.decide_children()

    def decide_children(self) -> int:
        """Release or cancel children until their states agree with those of their parents; return how many moved.

        One generation after another, each by the states before it; children that are to run again come first.
        """
        moved = 0
        while due := self._undecided():
            for record, move, reason in due:
                self._decide(record, move, reason)
            moved += len(due)
            self.settle_keys()
        return moved

    def _undecided(self) -> list[tuple[ReferenceJob, ChildMove, str]]:
        moves = [(record, self.move(record)) for record in self.records.values() if record.waits or record.is_broken]
        revived = [(record, move) for record, move in moves if record.is_broken and move is not ChildMove.CANCEL]
        waiting = [(record, move) for record, move in moves if record.waits and move is not ChildMove.WAIT]
        return [
            (record, move, self._reason(record) if move is ChildMove.CANCEL else "")
            for record, move in revived or waiting
        ]

    def _decide(self, record: ReferenceJob, move: ChildMove, reason: str) -> None:
        if record.waits and move is ChildMove.RUN:
            self.free(record)
        elif record.waits:
            self.set_cancelled(record, reason)
            record.is_broken = True
        else:
            record.is_broken = False
            try:
                self.take_key_back(record)
            except UniqueConflict as conflict:
                record.reason = reason_of_conflict(conflict.job_id, conflict.unique_key)
                return
            record.counters = after_retry(record.counters)
            record.cancel_reason = record.reason = record.finished_us = None
            record.state, record.waits = JobState.BLOCKED, True
            if move is ChildMove.RUN:
                self.free(record)

    def _reason(self, record: ReferenceJob) -> str:
        for parent_id, state in zip(parents_of(record.new), self._parents(record), strict=True):
            if state in {None, JobState.FAILED, JobState.CANCELLED}:
                return reason_of(parent_id, state)
        raise AssertionError(record.new.id)

    def free(self, record: ReferenceJob) -> None:
        """Let a job run whose parents have ended; one with an order key joins it, at the end."""
        record.waits = False
        if record.order_scope is not None:
            self.last_seq += 1
            record.place = self.last_seq
            others = [other for other in self.of_order_key(record.order_scope) if other is not record]
            if others:
                record.state = JobState.BLOCKED
                return
        record.state = JobState.SCHEDULED if record.run_us > self.now else JobState.READY
