"""What the machine says: decisions, reasons, phases and its status."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum

import msgspec

from holdfast.model.job import Lease, LeasedJob
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.values import Finish


class WorkerPhase(StrEnum):
    """Where a worker stands in its life; it only moves down this list."""

    RUNNING = "running"
    DRAINING = "draining"  # takes nothing new; handlers go on
    RELEASING = "releasing"  # handlers are aborted, their jobs given back
    ENDED = "ended"


class Why(StrEnum):
    """Why a handler is aborted, and what the machine expects of its end.

    LEASE_LOST: whatever `ended` brings is ignored. CANCEL_ASKED: `ended` with the outcome, Cancelled as a rule.
    SHUTDOWN: `ended` with the outcome if the handler came to one, with None if it was broken off.
    """

    LEASE_LOST = "lease_lost"
    CANCEL_ASKED = "cancel_asked"
    SHUTDOWN = "shutdown"


class Exit(IntEnum):
    """How the worker ended."""

    DRAINED = ExitCode.FINE
    RELEASED = ExitCode.RELEASED


class Decision(msgspec.Struct, gc=False):
    """What is to be done now. Each call made for it is answered by one event.

    `claim` is a limit (0: no claim). `rescue` is the unbroken access so far. Of `promote`, `rescue`, `prune` and
    `check_empty` at most one is in flight. `wait` is the seconds after which to decide again if no event comes first
    (None: an event must come).
    """

    claim: int = 0
    flush: list[Finish] | None = None
    release_unstarted: list[Lease] = []
    release_started: list[Lease] = []
    abort: list[tuple[LeasedJob, Why]] = []
    promote: bool = False
    rescue: timedelta | None = None
    prune: bool = False
    check_empty: bool = False
    wait: float | None = None
    exit: Exit | None = None


class Totals(msgspec.Struct, frozen=True):
    """What became of the jobs that this worker claimed.

    `lost` counts leases that were lost, and jobs whose own child process died. `abandoned` counts leases left to expire
    because the store could not be told.
    """

    completed: int = 0
    retried: int = 0
    snoozed: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    released: int = 0
    abandoned: int = 0

    def __str__(self) -> str:
        """Say what there was, in words."""
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "it has had no job"


class Status(msgspec.Struct, frozen=True):
    """A worker at a glance."""

    phase: WorkerPhase
    running: tuple[str, ...]
    prefetched: int
    buffered: int
    totals: Totals
