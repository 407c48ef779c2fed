"""Queues and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.audit import AuditEntry
from holdfast.model.limits import Limit
from holdfast.reports.states import is_silent
from holdfast.reports.times import now
from holdfast.server.dashboard.charts import Sparkline, per_minute, sparkline
from holdfast.server.dashboard.formats import at_least
from holdfast.server.dashboard.read.query import MOST_COUNTED
from holdfast.server.dashboard.read.records import pauses
from holdfast.store.values import Count, QueueView, TaskView

if TYPE_CHECKING:
    from holdfast.app.app import App

_RECENT: Final = timedelta(minutes=30)
_HOUR: Final = timedelta(hours=1)
STATES: Final = ("ready", "running", "scheduled", "blocked", "failed")


class QueueRow(msgspec.Struct, frozen=True):
    """A queue; `counts` are its jobs in each of `STATES`."""

    name: str
    paused: bool
    counts: dict[str, str]
    running: int
    oldest_ready: timedelta | None
    limit: Limit | None
    done: Sparkline
    is_served: bool = True


class QueuesScreen(msgspec.Struct, frozen=True):
    """All queues."""

    queues: tuple[QueueRow, ...]
    pauses: dict[str, AuditEntry]


class TaskRow(msgspec.Struct, frozen=True):
    """A task over all queues, and what happened to its jobs within an hour."""

    name: str
    paused: bool
    counts: dict[str, str]
    oldest_ready: timedelta | None
    limit: Limit | None
    key_limit: Limit | None
    completed: int
    failed: int
    mean_run: timedelta | None
    workers: int
    is_unknown: bool
    """Whether it has jobs, and no live worker knows it."""

    @property
    def failure_share(self) -> float | None:
        """The share of its ended jobs that failed."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else None


class TasksScreen(msgspec.Struct, frozen=True):
    """All tasks."""

    tasks: tuple[TaskRow, ...]
    has_workers: bool
    pauses: dict[str, AuditEntry]


async def read_queues(app: App) -> QueuesScreen:
    """Read all queues: four statements, and one more if any is paused."""
    views = await app.queues.list(most=MOST_COUNTED)
    counts = await app.jobs.counts(_RECENT)
    live = [worker.heartbeat for worker in await app.workers() if not is_silent(worker)]
    served = {view.name for view in views if any(each.queues is None or view.name in each.queues for each in live)}
    rows = queue_rows(views, counts, now())
    shown = tuple(msgspec.structs.replace(row, is_served=row.name in served) for row in rows)
    return QueuesScreen(shown, await pauses(app, "queue", (view.paused for view in views)))


def queue_rows(views: Sequence[QueueView], counts: Sequence[Count], at: datetime) -> tuple[QueueRow, ...]:
    """Return the queues, the one with the longest wait first."""
    done = per_minute(counts, "completed", at)
    ordered = sorted(views, key=lambda view: (-(view.oldest_ready or timedelta(0)), view.name))
    title = "Jobs of {} completed in each of the last 30 minutes"
    return tuple(
        QueueRow(
            view.name,
            view.paused,
            _counts(view, view.at_least),
            view.running,
            view.oldest_ready,
            view.limit,
            sparkline(done.get(view.name, []), "completed", title.format(view.name)),
        )
        for view in ordered
    )


def _counts(view: QueueView | TaskView, counted: Sequence[str]) -> dict[str, str]:
    return {state: at_least(getattr(view, state), state, counted) for state in STATES}


async def read_tasks(app: App) -> TasksScreen:
    """Read all tasks: four statements, and one more if any is paused."""
    views = await app.tasks.list(most=MOST_COUNTED)
    sums = await app.jobs.counts(_HOUR, by_minute=False)
    live = [worker.heartbeat for worker in await app.workers() if not is_silent(worker)]
    rows: list[TaskRow] = []
    for view in views:
        own = [count for count in sums if count.task == view.name]
        attempts = sum(count.completed + count.retried + count.failed + count.rescued for count in own)
        knowing = sum(each.tasks is None or view.name in each.tasks for each in live)
        has_jobs = any(getattr(view, state) for state in ("ready", "scheduled", "blocked"))
        rows.append(
            TaskRow(
                view.name,
                view.paused,
                _counts(view, view.at_least),
                view.oldest_ready,
                view.limit,
                view.key_limit,
                sum(count.completed for count in own),
                sum(count.failed for count in own),
                sum((count.run_time for count in own), timedelta(0)) / attempts if attempts else None,
                knowing,
                has_jobs and not knowing,
            )
        )
    return TasksScreen(tuple(rows), bool(live), await pauses(app, "task", (view.paused for view in views)))
