"""The values of the machine: decisions, reasons, phases and status."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum

import msgspec

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.totals import Totals
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.values import Finish


class WorkerPhase(StrEnum):
    """The phase of a worker; it only moves down this list."""

    RUNNING = "running"
    DRAINING = "draining"  # claims nothing; handlers may end
    RELEASING = "releasing"  # handlers are aborted, their jobs released
    ENDED = "ended"


class Why(StrEnum):
    """Why a handler is aborted, and what `ended` is to report.

    LEASE_LOST: the outcome is ignored. CANCEL_ASKED: the outcome, usually Cancelled. SHUTDOWN: the outcome if the
    handler reached one, otherwise None.
    """

    LEASE_LOST = "lease_lost"
    CANCEL_ASKED = "cancel_asked"
    SHUTDOWN = "shutdown"


class Exit(IntEnum):
    """How the worker ended."""

    DRAINED = ExitCode.FINE
    RELEASED = ExitCode.RELEASED


class Decision(msgspec.Struct, gc=False):
    """What to do now. The result of each store call is reported as one event.

    `claim` is a limit (0: no claim), `slots` for how many jobs of limits a slot is free, or will be very soon.
    `rescue` is the uninterrupted access so far. Of `promote`, `rescue`, `prune` and
    `check_empty` at most one is in flight. `wait` is the seconds after which to decide again if no event arrives first
    (None: wait for an event).
    """

    claim: int = 0
    slots: int = 0
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


class Status(msgspec.Struct, frozen=True):
    """A snapshot of a worker."""

    phase: WorkerPhase
    running: tuple[str, ...]
    prefetched: int
    buffered: int
    totals: Totals
