"""The overview: overall health, most urgent finding first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.job import JobState
from holdfast.reports.doctor import examine
from holdfast.reports.failures import FailureGroup, failure_groups
from holdfast.reports.finding import Finding, FindingLevel
from holdfast.reports.states import is_silent, worker_state
from holdfast.reports.times import now
from holdfast.server.dashboard.charts import WINDOWS, BarChart, throughput
from holdfast.server.dashboard.formats import at_least
from holdfast.server.dashboard.read.query import MOST_COUNTED
from holdfast.server.dashboard.read.queues import QueueRow, queue_rows
from holdfast.store.schedules import ScheduleView
from holdfast.store.stream_values import ConsumerView
from holdfast.store.values import Count, QueueView, WorkerView

if TYPE_CHECKING:
    from holdfast.app.app import App

_FAILURES: Final = 100
_WORST: Final = 3
_TOP: Final = 5
_QUEUES: Final = 15
_MINUTES: Final = timedelta(minutes=5)
_STATES: Final = ("running", "ready", "scheduled", "blocked", "failed")
_PAGES: Final = {
    "ready jobs": "/queues",
    "scheduled jobs": "/queues",
    "paused queues": "/queues",
    "paused tasks": "/tasks",
    "tasks": "/tasks",
    "schedules": "/schedules",
    "expired leases": "/leases",
    "workers": "/workers",
    "consumers": "/streams",
    "consumer lag": "/streams",
    "paused consumers": "/streams",
    "parked events": "/streams",
    "nodes": "/streams",
}


class LinkedFinding(msgspec.Struct, frozen=True):
    """A finding that is not fine, and the page that shows more."""

    finding: Finding
    page: str


class StateTotal(msgspec.Struct, frozen=True):
    """How many jobs are in a state over all queues."""

    state: str
    count: str
    is_zero: bool


class OverviewScreen(msgspec.Struct, frozen=True):
    """What the overview shows."""

    level: FindingLevel
    worst: tuple[LinkedFinding, ...]
    more: int
    totals: tuple[StateTotal, ...]
    per_minute: float
    longest_wait: timedelta | None
    mean_run: timedelta | None
    rescued: int
    chart: BarChart
    queues: tuple[QueueRow, ...]
    more_queues: int
    failures: tuple[FailureGroup, ...]
    late: tuple[ScheduleView, ...]
    more_late: int
    consumers: tuple[ConsumerView, ...]
    live_workers: int
    silent_workers: int
    slots: int
    used_slots: int


async def read_overview(app: App, window: str) -> OverviewScreen:
    """Read the overview."""
    window = window if window in WINDOWS else "1h"
    at = now()
    findings = await examine(app, most=MOST_COUNTED)
    queues = await app.queues.list(most=MOST_COUNTED)
    counts = await app.jobs.counts(WINDOWS[window])
    workers = await app.workers()
    failed = (await app.jobs.list(JobState.FAILED, limit=_FAILURES)).jobs
    late = sorted((view for view in await app.schedules.list() if view.is_overdue), key=lambda view: -view.overdue)
    consumers = await app.consumers.list() if app.backend.capabilities.has_streams else ()
    bad = sorted((each for each in findings if each.verdict), key=lambda each: -each.verdict)
    live = [worker for worker in workers if not is_silent(worker)]
    recent = [count for count in counts if count.minute_at >= at - _MINUTES]
    return OverviewScreen(
        level=bad[0].verdict if bad else FindingLevel.OK,
        worst=tuple(LinkedFinding(each, _PAGES.get(each.check, "/system")) for each in bad[:_WORST]),
        more=max(len(bad) - _WORST, 0),
        totals=_totals(queues),
        per_minute=sum(count.completed for count in recent) / (_MINUTES / timedelta(minutes=1)),
        longest_wait=max((view.oldest_ready for view in queues if view.oldest_ready is not None), default=None),
        mean_run=_mean_run(counts),
        rescued=sum(count.rescued for count in counts),
        chart=throughput(counts, window, at),
        queues=queue_rows(queues, counts, at)[:_QUEUES],
        more_queues=max(len(queues) - _QUEUES, 0),
        failures=tuple(failure_groups(failed)[:_TOP]),
        late=tuple(late[:_TOP]),
        more_late=max(len(late) - _TOP, 0),
        consumers=tuple(sorted(consumers, key=lambda view: -view.lag)[:_TOP]),
        live_workers=len(live),
        silent_workers=sum(worker_state(worker) == "silent" for worker in workers),
        slots=_slots(live),
        used_slots=sum(worker.running for worker in live),
    )


def _totals(queues: Sequence[QueueView]) -> tuple[StateTotal, ...]:
    counted = {name for view in queues for name in view.at_least}
    sums = {state: sum(getattr(view, state) for view in queues) for state in _STATES}
    return tuple(StateTotal(state, at_least(value, state, counted), value == 0) for state, value in sums.items())


def _mean_run(counts: Sequence[Count]) -> timedelta | None:
    attempts = sum(count.completed + count.retried + count.failed + count.rescued for count in counts)
    return sum((count.run_time for count in counts), timedelta(0)) / attempts if attempts else None


def _slots(live: Sequence[WorkerView]) -> int:
    return sum(worker.heartbeat.concurrency for worker in live)
