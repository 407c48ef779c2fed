"""What a bulk operation would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.bulk import JobSelection
from holdfast.app.operation import check_action
from holdfast.errors import ConfigError
from holdfast.model.job import JobState
from holdfast.server.dashboard.formats import at_least, number
from holdfast.server.dashboard.read.jobs import COUNTED, matching
from holdfast.server.dashboard.read.query import MOST_COUNTED, JobsQuery
from holdfast.store.values import JobView, QueueView, TaskView

if TYPE_CHECKING:
    from holdfast.app.app import App

_SAMPLES: Final = 5


class PreviewScreen(msgspec.Struct, frozen=True):
    """What an operation would change: the jobs of a filter, or those that were selected (`ids`)."""

    verb: str
    query: JobsQuery
    count: str
    samples: tuple[JobView, ...]
    ids: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return self.count == "0"


def selection_of(query: JobsQuery) -> JobSelection:
    """Return the jobs that a filter selects, for the verbs of operations. Raises `ConfigError` for other filters."""
    if not query.is_selection:
        message = "all jobs of an order key or a worker cannot be changed at once: select rows, or filter otherwise"
        raise ConfigError(message)
    return JobSelection(query.state, query.queue, query.task, error=query.error)


async def read_preview(app: App, verb: str, query: JobsQuery) -> PreviewScreen:
    """Count what a filter selects, and read some of it. Raises `ConfigError` if the verb does not apply."""
    check_action(verb, selection_of(query))
    found = await matching(app, query)
    if found.cursor is None:
        count = number(len(found.jobs))
    else:
        count = await _counted(app, query) or f"{number(len(found.jobs))}+"
    return PreviewScreen(verb, query, count, tuple(found.jobs[:_SAMPLES]))


async def _counted(app: App, query: JobsQuery) -> str | None:
    """Return how many jobs of a queue, of a task or of all are in a state; None if they are not counted so."""
    views: Sequence[QueueView | TaskView]
    if query.state not in COUNTED or len(query.filters) > 1 or query.error:
        return None
    if query.task:
        views = [view for view in await app.tasks.list(most=MOST_COUNTED) if view.name == query.task]
    else:
        views = [view for view in await app.queues.list(most=MOST_COUNTED) if query.queue in {None, view.name}]
    counted = {name for view in views for name in view.at_least}
    return at_least(sum(getattr(view, query.state) for view in views), query.state, counted)


async def read_selected(app: App, verb: str, query: JobsQuery, ids: Sequence[str]) -> PreviewScreen:
    """Return which of the selected jobs are still in the state in which they were selected."""
    check_action(verb, JobSelection(query.state))
    states = {each.id: JobState(each.state) for each in await app.backend.insight.states(ids)}
    kept = tuple(job_id for job_id in ids if states.get(job_id) is query.state)
    samples = [(await app.jobs.show(job_id)).job for job_id in kept[:_SAMPLES]]
    return PreviewScreen(verb, query, number(len(kept)), tuple(samples), kept)
