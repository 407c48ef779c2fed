"""Unique keys of the reference model: which job took a key last, and whether it still holds it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.errors import UniqueConflict
from holdfast.model.conditions import OnConflict, Unique, UniqueScope
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, NewJob
from holdfast.testing.reference.records import ReferenceJob, ReferenceState


@dataclass(slots=True)
class ReferenceKey:
    """A unique key: the job that took it last."""

    job_id: str
    scope: UniqueScope
    until_us: int | None
    replaced_by: str | None = None


class ReferenceUniqueKeys(ReferenceState):
    """The rule of unique keys."""

    def unique_holder(self, job: NewJob, unique: Unique) -> str | None:
        """Return the job that the caller gets instead of this one; None if this one is to be enqueued."""
        key = self.unique_keys.get((job.task, unique.key))
        if key is None or not self._is_held(key):
            if key is not None and key.replaced_by == job.id:
                return key.job_id
            until = None if unique.period is None else self.now + span_micros(unique.period)
            self.unique_keys[job.task, unique.key] = ReferenceKey(job.id, unique.scope, until)
            return None
        if key.replaced_by == job.id:
            return key.job_id
        if unique.on_conflict is OnConflict.RAISE:
            raise UniqueConflict(key.job_id, job.task, unique.key)
        holder = self.records.get(key.job_id)
        if unique.on_conflict is OnConflict.REPLACE and holder is not None and _waits(holder):
            self._replace(holder, job)
            key.replaced_by = job.id
        return key.job_id

    def _is_held(self, key: ReferenceKey) -> bool:
        if key.until_us is not None:
            return self.now < key.until_us
        holder = self.records.get(key.job_id)
        if holder is None or holder.is_final:
            return False
        return key.scope is UniqueScope.UNFINISHED or _waits(holder)

    def _replace(self, holder: ReferenceJob, job: NewJob) -> None:
        holder.new = msgspec.structs.replace(holder.new, payload=job.payload)
        holder.size = len(job.payload.encode())
        holder.due_at(self.due_us(job))
        if holder.state is not JobState.BLOCKED:
            holder.leave(JobState.SCHEDULED if holder.run_us > self.now else JobState.READY)
            holder.retrying = False

    def take_key_back(self, record: ReferenceJob) -> None:
        """Give an ended job its key again; raises `UniqueConflict` if another job holds it."""
        job, unique = record.new, record.unique
        if unique is None or unique.scope is UniqueScope.PERIOD:
            return
        key = self.unique_keys.get((job.task, unique.key))
        if key is None or key.job_id != job.id:
            if key is not None and self._is_held(key):
                raise UniqueConflict(key.job_id, job.task, unique.key, retried=job.id)
            self.unique_keys[job.task, unique.key] = ReferenceKey(job.id, unique.scope, None)

    def drop_keys_of(self, job_id: str) -> None:
        """Forget the key of a deleted job, unless it is held for a period."""
        for name, key in list(self.unique_keys.items()):
            if key.job_id == job_id and key.until_us is None:
                del self.unique_keys[name]

    def drop_past_keys(self) -> None:
        """Delete the keys whose period has ended."""
        for name, key in list(self.unique_keys.items()):
            if key.until_us is not None and key.until_us <= self.now:
                del self.unique_keys[name]


def _waits(record: ReferenceJob) -> bool:
    return record.state in {JobState.READY, JobState.SCHEDULED, JobState.BLOCKED}
