"""Schedules of an app: declared in code with `@app.schedule`, or defined at run time with `app.schedules.add`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

from holdfast.app.job_handle import JobHandle, handle_of
from holdfast.app.sync import Blocking, Sync
from holdfast.app.tasks import TaskHandle
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.jobs.enqueue import job_template, new_job, unknown_enqueue
from holdfast.jobs.task import Task, make_task
from holdfast.model.declarations import SILENT
from holdfast.model.ids import check_id, new_id
from holdfast.model.names import check_name
from holdfast.model.schedule import Missed, MissedName, recurrence
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.runtime.unknown_settings import refuse_unknown
from holdfast.store.schedules import ScheduleView
from holdfast.store.verbs.schedules import not_found

if TYPE_CHECKING:
    from holdfast.app.app import App

P = ParamSpec("P")
R = TypeVar("R")


class ScheduleSettings(TypedDict, total=False):
    """The settings of a schedule: the only list of them.

    Either a cron expression, in `timezone`, or a period `every`. `missed` decides on the times that passed while
    no worker ran: `skip`, `once` or `all`, none older than `window`. Each job is due up to `jitter` after its time.
    `args` and `kwargs` are the arguments of the call; the others are options of the job, as in `task.options(…)`.
    """

    every: float | timedelta | None
    timezone: str
    missed: Missed | MissedName
    window: float | timedelta
    jitter: float | timedelta
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: float | timedelta | None
    headers: Mapping[str, str] | None
    order_key: str | None
    limit_key: str | None


SCHEDULE_SETTINGS: Final = tuple(ScheduleSettings.__annotations__)
_TIMES: Final = ("every", "timezone", "missed", "window", "jitter")


class ScheduleDecorator(Protocol):
    """The result of `@app.schedule(…)`: schedules a task, or makes a task of a function and schedules it."""

    def __call__(self, function: Callable[P, R], /) -> TaskHandle[P, R]:
        """Declare the schedule."""
        ...


def define(task: Task, cron: str | None, settings: ScheduleSettings) -> ScheduleDefinition:
    """Check the settings of a schedule; raises `ConfigError` or `ArgumentsError` with the remedy."""
    refuse_unknown(f"schedule of task {task.name!r}", settings, SCHEDULE_SETTINGS)
    given = cast("dict[str, Any]", dict(settings))
    times = recurrence(cron, **{name: given.pop(name) for name in _TIMES if name in given})
    args, kwargs = given.pop("args", ()), given.pop("kwargs", {})
    if not _are_arguments(args, kwargs):
        raise ConfigError("args must be a list of arguments, kwargs a mapping of arguments by name")
    job = new_job(job_template(task, **given), args, kwargs)
    return ScheduleDefinition(
        times=times,
        task=job.task,
        queue=job.queue,
        payload=job.payload,
        headers=job.headers,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        order_key=job.order_key,
        limit_key=job.limit_key,
    )


def _are_arguments(args: object, kwargs: object) -> bool:
    return isinstance(args, Sequence) and not isinstance(args, str) and isinstance(kwargs, Mapping)


class Schedules:
    """`app.schedules`: list, pause, resume and run schedules, and define them at run time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.declared: dict[str, ScheduleDefinition] = {}
        """The schedules that the code declares with `@app.schedule`, by name."""

    @property
    def sync(self) -> SyncSchedules:
        """The same with blocking calls."""
        return SyncSchedules(self, self._app.portal)

    def schedule(
        self, cron: str | None = None, /, *, name: str | None = None, **settings: Unpack[ScheduleSettings]
    ) -> ScheduleDecorator:
        """Declare that a task runs again and again, by a cron expression or `every` period.

        Applied to a task, or to a function, of which it makes a task. The settings are those of `ScheduleSettings`; the
        name of the schedule is that of the task, unless given.
        """
        if callable(cron):
            raise ConfigError('@app.schedule needs parentheses: pass the times, as in @app.schedule("*/5 * * * *")')

        def declare(function: Callable[P, R], /) -> TaskHandle[P, R]:
            is_task = isinstance(function, TaskHandle)
            handle = cast("TaskHandle[P, R]", function) if is_task else self._register(function)
            own = check_name("schedule", handle.name if name is None else name)
            if own in self.declared:
                remedy = 'give this one another name, as in @app.schedule("…", name="…")'
                raise ConfigError(f"schedule {own!r} is declared already: {remedy}")
            self.declared[own] = define(handle.task, cron, settings)
            return handle

        return declare

    def _register(self, function: Callable[P, R]) -> TaskHandle[P, R]:
        task = make_task(function)
        self._app.tasks.add(task)
        return TaskHandle(self._app, task, function)

    async def list(self) -> Sequence[ScheduleView]:
        """List the schedules of the store, with their last and next times."""
        return await (await self._app.opened(install=False)).schedules.list()

    async def show(self, name: str) -> ScheduleView:
        """Return one schedule; raises `ScheduleNotFound`."""
        found = await (await self._app.opened(install=False)).schedules.list([check_name("schedule", name)])
        if not found:
            raise not_found(name)
        return found[0]

    async def add(self, name: str, task: str, cron: str | None = None, **settings: Unpack[ScheduleSettings]) -> bool:
        """Define a schedule at run time, or replace it; True if it is new. Raises `TaskNotFound`.

        Raises `ConfigError` if the code of an app declares it.
        """
        definition = define(self._app.tasks.get(task), cron, settings)
        return await (await self._app.opened()).schedules.put(check_name("schedule", name), definition)

    async def remove(self, name: str) -> bool:
        """Delete a schedule; False if there is none. Raises `ConfigError` while workers run whose code declares it."""
        return await (await self._app.opened(install=False)).schedules.remove(check_name("schedule", name), SILENT)

    async def pause(self, name: str) -> bool:
        """Fire no more; False if it was paused already. Times that pass meanwhile never fire. `ScheduleNotFound`."""
        return await (await self._app.opened(install=False)).schedules.pause(check_name("schedule", name))

    async def resume(self, name: str) -> bool:
        """Fire again, from the next time on; False if it was not paused. Raises `ScheduleNotFound`."""
        return await (await self._app.opened(install=False)).schedules.resume(check_name("schedule", name))

    async def run(self, name: str, *, job_id: str | UUID | None = None) -> JobHandle[Any]:
        """Enqueue a job of the schedule now, in addition to its times and even if it is paused; return its handle.

        `job_id` (a UUID) makes it safe to repeat. Raises `ScheduleNotFound`, and `ConfigError` if this process does not
        understand the stored definition.
        """
        own_id = new_id() if job_id is None else check_id(str(job_id))
        view = await self.show(name)
        if view.problem is not None:
            raise ConfigError(f"schedule {name} cannot be run from here: {view.problem}")
        job = view.definition.extra_job(name, own_id)
        try:
            (answer,) = await self._app.enqueue_new([job])
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, [job]) from error
        return handle_of(self._app, job.id, answer, Any)


class SyncSchedules(Sync[Schedules]):
    """`app.schedules.sync`."""

    list = Blocking(Schedules.list)
    show = Blocking(Schedules.show)
    add = Blocking(Schedules.add)
    remove = Blocking(Schedules.remove)
    pause = Blocking(Schedules.pause)
    resume = Blocking(Schedules.resume)
    run = Blocking(Schedules.run)
