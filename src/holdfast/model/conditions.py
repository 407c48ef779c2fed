"""What a job may demand at its enqueue beyond a time: a unique key, parents."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec


class UniqueScope(StrEnum):
    """How long a job holds its unique key."""

    WAITING = "waiting"  # until it starts; again while it waits for a retry, unless another job has taken the key
    UNFINISHED = "unfinished"  # until it is completed, failed or cancelled
    PERIOD = "period"  # for a fixed time after its enqueue, in any state


class OnConflict(StrEnum):
    """What an enqueue does if another job holds its unique key."""

    KEEP = "keep"  # enqueue nothing; the caller gets the other job
    REPLACE = "replace"  # give the other job, if it has not started, the new arguments and time
    RAISE = "raise"  # raise `UniqueConflict`


class Unique(msgspec.Struct, frozen=True, gc=False):
    """A unique key within a task; `period` is given for that scope only."""

    key: str
    scope: UniqueScope = UniqueScope.UNFINISHED
    on_conflict: OnConflict = OnConflict.KEEP
    period: timedelta | None = None


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """The conditions of a job; a job without any has None instead, and takes the short path of its store.

    `after`: the ids of its parents; the job is blocked until all of them have ended. If one failed or was cancelled,
    the job is cancelled, unless `run_anyway`.
    """

    unique: Unique | None = None
    after: tuple[str, ...] = ()
    run_anyway: bool = False
