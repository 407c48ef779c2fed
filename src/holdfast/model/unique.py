"""Which job holds a unique key, and what an enqueue does about it. Pure: the store's clock comes in.

Nothing is written when a job starts or ends. The key names the job that took it last, and whether that job still holds
it is read from the job's state when that matters: at the next enqueue, or at a manual retry.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.model.conditions import OnConflict, Unique, UniqueScope


class Stage(StrEnum):
    """How far a job is, as far as a unique key is concerned."""

    WAITING = "waiting"  # ready, scheduled or blocked
    RUNNING = "running"
    ENDED = "ended"


class Holder(NamedTuple):
    """The job that took a unique key last.

    `until` is the end of its period, in microseconds. `stage` is None if the job does not exist: it was pruned.
    `replaced_by` is the id of the last enqueue that replaced its arguments.
    """

    id: str
    scope: UniqueScope
    until: int | None
    stage: Stage | None
    replaced_by: str | None = None

    def holds(self, now: int) -> bool:
        """Whether the job holds its key."""
        match self.scope:
            case UniqueScope.WAITING:
                return self.stage is Stage.WAITING
            case UniqueScope.UNFINISHED:
                return self.stage in {Stage.WAITING, Stage.RUNNING}
            case UniqueScope.PERIOD:
                return self.until is not None and now < self.until


class KeyDecision(StrEnum):
    """What an enqueue does about its unique key."""

    TAKE = "take"  # the key is free: enqueue the job
    KEEP = "keep"  # enqueue nothing: the answer is the holder
    REPLACE = "replace"  # enqueue nothing: give the holder the new arguments and time
    REFUSE = "refuse"  # raise `UniqueConflict`


def decide(job_id: str, unique: Unique, holder: Holder, now: int) -> KeyDecision:
    """Decide on a job that another one may hold the key of.

    A running job keeps its arguments: if it holds the key, `replace` does what `keep` does. A repeat of an enqueue that
    has replaced the arguments, because its reply was lost, gets the same job, even if that has started since.
    """
    if holder.replaced_by == job_id:
        return KeyDecision.KEEP
    if not holder.holds(now):
        return KeyDecision.TAKE
    match unique.on_conflict:
        case OnConflict.KEEP:
            return KeyDecision.KEEP
        case OnConflict.RAISE:
            return KeyDecision.REFUSE
        case OnConflict.REPLACE:
            return KeyDecision.REPLACE if holder.stage is Stage.WAITING else KeyDecision.KEEP


def may_retry(job_id: str, holder: Holder, now: int) -> bool:
    """Whether an ended job may take its key back, for a manual retry."""
    return holder.id == job_id or not holder.holds(now)
