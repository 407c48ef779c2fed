"""Records of the store's state seen from outside: in snapshots, and in the final dump."""

from __future__ import annotations

import msgspec

from holdfast.torture.event import HistoryRecord, JobEvent


class Clock(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A reading of the store's clock: `store_us` was current at some time from `sent_us` to `at_us`."""

    sent_us: int


class Snapshot(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The number of jobs in each state, read in one transaction between `sent_us` and `at_us`."""

    counts: dict[str, int]
    sent_us: int
    pruned: int = 0


class AttemptRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt without completion, as stored; times by the store's clock."""

    attempt: int
    outcome: str
    worker: str = ""
    started_us: int = 0
    ended_us: int = 0
    error: str = ""


class DumpedJob(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A job in the final dump: one record for each state in which the store shows it, so two if it is in two places.

    `completions` counts its rows in the ledger. `call` is its header of that name. A job of a schedule has the nominal
    time `nominal_us`, by the store's clock.
    """

    job: str
    state: str
    attempt: int
    max_attempts: int
    seq: int = 0
    completions: int = 0
    worker: str = ""
    run_us: int = 0
    enqueued_us: int = 0
    finished_us: int = 0
    reason: str = ""
    call: str = ""
    schedule: str = ""
    nominal_us: int = 0
    queue: str = ""
    task: str = ""
    attempts: tuple[AttemptRow, ...] = ()


class EffectRow(JobEvent, frozen=True, kw_only=True, gc=False):
    """A row of the effect table in the final dump; that table has no unique constraint."""

    attempt: int
    worker: str = ""
    seq: int = 0


class Dumped(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The final dump is complete; its totals and leftovers.

    `rows` counts its job records. `leases`, `transactions`, `connections` and `processes` are leftovers of the run
    after all workers have exited; `integrity` is empty, or describes the damage that the store reports.
    """

    rows: int
    effects: int
    leases: int = 0
    transactions: int = 0
    connections: int = 0
    processes: int = 0
    integrity: str = ""
