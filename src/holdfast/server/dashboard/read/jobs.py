"""The list of jobs in one state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.bulk import JobSelection
from holdfast.app.job_search import FoundJobs, search
from holdfast.model.job import JobState
from holdfast.server.dashboard.formats import at_least
from holdfast.server.dashboard.read.query import MOST_COUNTED, JobsQuery
from holdfast.store.values import JobView, QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN: Final = 50
COUNTED: Final = (JobState.SCHEDULED, JobState.BLOCKED, JobState.READY, JobState.RUNNING, JobState.FAILED)
ORDER: Final = (
    JobState.RUNNING,
    JobState.READY,
    JobState.SCHEDULED,
    JobState.BLOCKED,
    JobState.FAILED,
    JobState.COMPLETED,
    JobState.CANCELLED,
)


class StateTab(msgspec.Struct, frozen=True):
    """A tab; `count` is None for states whose jobs are not counted, and under a filter by task."""

    state: JobState
    count: str | None
    is_current: bool


class JobsScreen(msgspec.Struct, frozen=True):
    """A page of the list. `looked_at` is set if only so many jobs were compared with the filter, and more are left."""

    query: JobsQuery
    tabs: tuple[StateTab, ...]
    queues: tuple[str, ...]
    jobs: tuple[JobView, ...]
    cursor: str | None
    looked_at: int | None = None


async def read_jobs(app: App, query: JobsQuery) -> JobsScreen:
    """Read a page: three statements, or up to seven under a filter that few jobs match."""
    queues = await app.queues.list(most=MOST_COUNTED)
    found = await matching(app, query)
    return JobsScreen(
        query,
        _tabs(query, [view for view in queues if query.queue in {None, view.name}]),
        tuple(view.name for view in queues),
        tuple(found.jobs),
        found.cursor,
        found.looked_at if found.is_cut else None,
    )


def _tabs(query: JobsQuery, queues: list[QueueView]) -> tuple[StateTab, ...]:
    def count(state: JobState) -> str | None:
        if state not in COUNTED or query.task is not None or query.error is not None:
            return None
        counted = {name for view in queues for name in view.at_least}
        return at_least(sum(getattr(view, state) for view in queues), state, counted)

    return tuple(StateTab(state, count(state), state is query.state) for state in ORDER)


async def matching(app: App, query: JobsQuery) -> FoundJobs:
    """Return jobs that match a filter."""
    selection = JobSelection(query.state, query.queue, query.task, error=query.error)
    return await search(app, selection, cursor=query.cursor, limit=SHOWN)
