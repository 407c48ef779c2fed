"""Workers, and the leases that they hold."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.job import JobState
from holdfast.reports.job_text import progress_of
from holdfast.reports.states import worker_state
from holdfast.server.dashboard.read.job import seen_text
from holdfast.store.values import LeaseView, WorkerView

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN_LEASES: Final = 50


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker and its state as one word."""

    view: WorkerView
    state: str


class WorkersScreen(msgspec.Struct, frozen=True):
    """The workers, those of one supervisor together."""

    rows: tuple[WorkerRow, ...]
    live: int
    silent: int
    slots: int
    running: int

    @property
    def groups(self) -> list[tuple[str | None, list[WorkerRow]]]:
        """The workers by the supervisor that started them; None: started alone."""
        return [(name or None, list(rows)) for name, rows in groupby(self.rows, _supervisor)]


def _supervisor(row: WorkerRow) -> str:
    return row.view.heartbeat.supervisor_id or ""


async def read_workers(app: App) -> WorkersScreen:
    """Read the workers: one statement."""
    rows = [WorkerRow(view, worker_state(view)) for view in await app.workers()]
    rows.sort(key=lambda row: (_supervisor(row), row.state, row.view.heartbeat.worker_id))
    live = [row.view for row in rows if row.state == "live"]
    return WorkersScreen(
        tuple(rows),
        len(live),
        sum(row.state == "silent" for row in rows),
        sum(view.heartbeat.concurrency for view in live),
        sum(view.running for view in live),
    )


class LeaseRow(msgspec.Struct, frozen=True):
    """A lease and the progress of its attempt."""

    view: LeaseView
    progress: str | None

    @property
    def seen(self) -> str:
        """What a form must repeat, as on the page of the job."""
        return seen_text(JobState.RUNNING, self.view.attempt, self.view.fence)

    @property
    def is_expired(self) -> bool:
        """Whether it has expired and was not yet rescued."""
        return self.view.expires_in <= timedelta(0)


class LeasesScreen(msgspec.Struct, frozen=True):
    """The leases, the next to expire first."""

    leases: tuple[LeaseRow, ...]
    is_cut: bool


async def read_leases(app: App) -> LeasesScreen:
    """Read the leases: one statement."""
    found = await app.leases(SHOWN_LEASES + 1)
    rows = tuple(LeaseRow(view, progress_of(view)) for view in found[:SHOWN_LEASES])
    return LeasesScreen(rows, len(found) > SHOWN_LEASES)
