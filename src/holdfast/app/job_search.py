"""Search the jobs of a selection, a page at a time, each with bounded work.

Ready jobs are indexed by queue and task, and few jobs run. In the other states a store would search until it has
filled a page, over millions of jobs if none matches: here a search ends after some chunks, and the next call
continues from there. So a page may have fewer jobs than were asked for, or none, and still a cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.job import JobState
from holdfast.store.values import JobPage, JobView

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.bulk import JobSelection

_CHUNK: Final = 500
_MOST_CHUNKS: Final = 4
_INDEXED: Final = frozenset({JobState.READY, JobState.RUNNING})


class FoundJobs(msgspec.Struct, frozen=True):
    """Jobs that match, and the cursor behind the last job that was compared; None: there are no more.

    `is_cut`: the search ended because it had looked at enough jobs, not because the page is full.
    """

    jobs: list[JobView]
    cursor: str | None
    looked_at: int
    is_cut: bool = False


async def search(
    app: App,
    selection: JobSelection,
    *,
    cursor: str | None = None,
    limit: int = 50,
    accepts: Callable[[JobView], bool] | None = None,
) -> FoundJobs:
    """Return a page of the jobs that a selection contains, whatever their age, and that `accepts` returns true for."""
    is_plain = selection.queue is None and selection.task is None
    if accepts is None and selection.error is None and (is_plain or selection.state in _INDEXED):
        page = await app.jobs.list(
            selection.state, queue=selection.queue, task=selection.task, cursor=cursor, limit=limit
        )
        return FoundJobs(page.jobs, page.cursor, len(page.jobs))
    found: list[JobView] = []
    looked_at = 0
    for _ in range(_MOST_CHUNKS):
        page = await _chunk(app, selection, cursor, _CHUNK)
        fitting = (place for place, job in enumerate(page.jobs, 1) if selection.fits(job))
        places = [place for place in fitting if accepts is None or accepts(page.jobs[place - 1])]
        room = limit - len(found)
        found += [page.jobs[place - 1] for place in places[:room]]
        if len(places) >= room and places[room - 1] < len(page.jobs):  # the next page begins inside this chunk
            page = await _chunk(app, selection, cursor, places[room - 1])
            return FoundJobs(found, page.cursor, looked_at + len(page.jobs))
        cursor, looked_at = page.cursor, looked_at + len(page.jobs)
        if cursor is None or len(found) >= limit:
            return FoundJobs(found, cursor, looked_at)
    return FoundJobs(found, cursor, looked_at, is_cut=True)


async def _chunk(app: App, selection: JobSelection, cursor: str | None, limit: int) -> JobPage:
    """Return jobs of the state; where the store finds those of a queue and a task by an index, only these."""
    if selection.state not in _INDEXED:
        return await app.jobs.list(selection.state, cursor=cursor, limit=limit)
    return await app.jobs.list(selection.state, queue=selection.queue, task=selection.task, cursor=cursor, limit=limit)
