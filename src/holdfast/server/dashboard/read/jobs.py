"""The list of jobs in one state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.bulk import error_shape
from holdfast.model.job import JobState
from holdfast.server.dashboard.formats import at_least
from holdfast.server.dashboard.read.query import MOST_COUNTED, JobsQuery
from holdfast.store.values import JobView, QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN: Final = 50
_CHUNK: Final = 500
_MOST_CHUNKS: Final = 4
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
    """A tab; `count` is None for states whose jobs are not counted, and under other filters than by queue."""

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


class FoundJobs(msgspec.Struct, frozen=True):
    """Jobs that match a filter, and the cursor behind the last job that was compared; None: there are no more."""

    jobs: list[JobView]
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
        found.looked_at,
    )


def _tabs(query: JobsQuery, queues: list[QueueView]) -> tuple[StateTab, ...]:
    def count(state: JobState) -> str | None:
        if state not in COUNTED or query.filters.keys() - {"queue"}:
            return None
        counted = {name for view in queues for name in view.at_least}
        return at_least(sum(getattr(view, state) for view in queues), state, counted)

    return tuple(StateTab(state, count(state), state is query.state) for state in ORDER)


async def matching(app: App, query: JobsQuery) -> FoundJobs:
    """Return jobs that match, and the cursor behind the last job that was compared.

    Ready jobs are indexed by queue and task. In the other states a store would search on until it has found enough,
    over millions of jobs if none matches: here the search ends after some chunks, and goes on from there when asked.
    """
    is_indexed = query.state in {JobState.READY, JobState.RUNNING} and query.is_selection and query.error is None
    if is_indexed or not query.filters:
        page = await app.jobs.list(query.state, queue=query.queue, task=query.task, cursor=query.cursor, limit=SHOWN)
        return FoundJobs(page.jobs, page.cursor)
    found: list[JobView] = []
    cursor, looked_at = query.cursor, 0
    for _ in range(_MOST_CHUNKS):
        page = await app.jobs.list(query.state, cursor=cursor, limit=_CHUNK)
        places = [place for place, job in enumerate(page.jobs, 1) if _fits(job, query)]
        room = SHOWN - len(found)
        found += [page.jobs[place - 1] for place in places[:room]]
        if len(places) >= room and places[room - 1] < len(page.jobs):  # the next page begins inside this chunk
            page = await app.jobs.list(query.state, cursor=cursor, limit=places[room - 1])
            return FoundJobs(found, page.cursor)
        cursor, looked_at = page.cursor, looked_at + len(page.jobs)
        if cursor is None or len(found) >= SHOWN:
            return FoundJobs(found, cursor)
    return FoundJobs(found, cursor, looked_at)


def _fits(job: JobView, query: JobsQuery) -> bool:
    is_asked = query.queue in {None, job.queue} and query.task in {None, job.task}
    is_keyed = query.order_key in {None, job.order_key} and query.worker in {None, job.worker_id}
    return is_asked and is_keyed and query.error in {None, error_shape(job.reason)}
