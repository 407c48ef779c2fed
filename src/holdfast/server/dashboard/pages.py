"""The pages: the path of each, what it reads, and its template."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.routing import compile_path

from holdfast.model.job import FINAL_STATES, JobState
from holdfast.server.dashboard.read.errors import read_errors
from holdfast.server.dashboard.read.events import read_events, revealed_events
from holdfast.server.dashboard.read.job import read_job
from holdfast.server.dashboard.read.jobs import read_jobs
from holdfast.server.dashboard.read.overview import read_overview
from holdfast.server.dashboard.read.query import RowSlice, job_query
from holdfast.server.dashboard.read.queues import read_queues, read_tasks
from holdfast.server.dashboard.read.records import read_audit, read_operations
from holdfast.server.dashboard.read.schedules import read_schedules
from holdfast.server.dashboard.read.streams import read_consumer, read_streams
from holdfast.server.dashboard.read.system import read_system
from holdfast.server.dashboard.read.workers import read_leases, read_workers
from holdfast.server.dashboard.reveal import revealed
from holdfast.server.state import ServerSettings

if TYPE_CHECKING:
    from holdfast.app.app import App


class PageRequest(msgspec.Struct, frozen=True):
    """What the URL of a page asks for."""

    params: Mapping[str, str]
    query: Mapping[str, str]


Values = dict[str, Any]
Reader = Callable[["App", PageRequest], Awaitable[Values]]


class Reveal(msgspec.Struct, frozen=True):
    """What a page shows on request only: `read` it from the screen. `action` and `target` are for the audit log."""

    action: str
    target: Callable[[Any], str]
    read: Callable[[ServerSettings, Any], Any]


class Page(msgspec.Struct, frozen=True):
    """A page: `read` turns what is asked for into the values of the template."""

    path: str
    title: str
    read: Reader
    reveal: Reveal | None = None

    @property
    def template(self) -> str:
        """The file of its template."""
        return f"{self.title.lower()}.html"

    def params_of(self, path: str) -> Mapping[str, str] | None:
        """Return the parameters in a path; None if it is not one of this page."""
        match = compile_path(self.path)[0].match(path)
        return None if match is None else match.groupdict()


async def _overview(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_overview(app, asked.query.get("window", "1h"))}


async def _jobs(app: App, asked: PageRequest) -> Values:
    query = job_query(asked.query)
    return {"screen": await read_jobs(app, query), "search": "", "actions": actions_on(query.state)}


async def _job(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_job(app, asked.params["job_id"]), "revealed": None}


async def _events(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_events(app, asked.query), "revealed": None}


async def _consumer(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_consumer(app, asked.query.get("name", ""))}


async def _operations(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_operations(app, asked.query.get("before"))}


async def _audit(app: App, asked: PageRequest) -> Values:
    return {"screen": await read_audit(app, asked.query.get("before"))}


def _plain(read: Callable[[App], Awaitable[msgspec.Struct]]) -> Reader:
    async def values(app: App, _: PageRequest) -> Values:
        return {"screen": await read(app)}

    return values


def _sliced(read: Callable[[App], Awaitable[msgspec.Struct]], field: str, most: int = 40) -> Reader:
    """Show at most so many rows of a list at once: pages stay small however many queues or workers there are."""

    async def values(app: App, asked: PageRequest) -> Values:
        screen = await read(app)
        rows = getattr(screen, field)
        part = RowSlice.of(asked.query, most, len(rows))
        shown = rows[part.first : part.end]
        return {"screen": msgspec.structs.replace(screen, **{field: shown}), "part": part}

    return values


def actions_on(state: JobState) -> tuple[str, ...]:
    """Return what can be done to many jobs in a state."""
    if state in {JobState.FAILED, JobState.CANCELLED}:
        return ("retry", "delete")
    return ("delete",) if state in FINAL_STATES else ("cancel",)


PAGES: Final = (
    Page("/", "Overview", _overview),
    Page("/jobs", "Jobs", _jobs),
    Page(
        "/jobs/{job_id}",
        "Job",
        _job,
        Reveal("job.reveal", lambda screen: screen.job.id, lambda settings, screen: revealed(settings, screen.details)),
    ),
    Page("/errors", "Errors", _sliced(read_errors, "groups", 20)),
    Page("/queues", "Queues", _sliced(read_queues, "queues", 30)),
    Page("/tasks", "Tasks", _sliced(read_tasks, "tasks")),
    Page("/workers", "Workers", _sliced(read_workers, "rows")),
    Page("/leases", "Leases", _plain(read_leases)),
    Page("/schedules", "Schedules", _sliced(read_schedules, "schedules", 25)),
    Page("/streams", "Streams", _sliced(read_streams, "consumers", 8)),
    Page("/events", "Events", _events, Reveal("events.reveal", lambda screen: screen.place, revealed_events)),
    Page("/consumer", "Consumer", _consumer),
    Page("/operations", "Operations", _operations),
    Page("/audit", "Audit", _audit),
    Page("/system", "System", _plain(read_system)),
)


def page_at(path: str) -> tuple[Page, Mapping[str, str]] | None:
    """Return the page at a path, with the parameters in it."""
    for page in PAGES:
        params = page.params_of(path)
        if params is not None:
            return page, params
    return None
