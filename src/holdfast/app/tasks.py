"""The result of `@app.task`: enqueues jobs of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack
from uuid import UUID

from holdfast.app.job_handle import JobHandle, JobHandles
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import OutcomeUnknown
from holdfast.jobs.enqueue import JobOptions, JobTemplate, job_template, new_job, new_jobs, unknown_enqueue
from holdfast.jobs.task import Task

if TYPE_CHECKING:
    from holdfast.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")


class TaskHandle(Generic[P, R]):
    """A task of an app. Calling it calls the function directly; `enqueue` makes a job of the call."""

    def __init__(self, app: App, task: Task, function: Callable[P, R], template: JobTemplate | None = None) -> None:
        self.app = app
        self.task = task
        self._function = function
        self._template = template or job_template(task)
        self.__name__ = task.name
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the signature."""
        return f"<task {self.task.signature.text}>"

    @property
    def name(self) -> str:
        """The name under which jobs of this task are stored."""
        return self.task.name

    @property
    def sync(self) -> SyncTask:
        """The same with blocking calls."""
        return SyncTask(self, self.app.portal)

    def options(self, **options: Unpack[JobOptions]) -> TaskHandle[P, R]:
        """Return this task with other options for the jobs enqueued through it; they are those of `JobOptions`."""
        return TaskHandle(self.app, self.task, self._function, job_template(self.task, **options))

    async def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle:
        """Make a job of this call and return once the store has committed it."""
        job = new_job(self._template, args, kwargs)
        try:
            (created,) = await self.app.enqueue_new([job], using=self._template.using)
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, [job]) from error
        return JobHandle(self.app, job.id, created=created)

    async def enqueue_many(
        self,
        calls: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle]:
        """Make a job of each call, all or none.

        `job_ids` (UUIDs, one for each call) make it safe to repeat; `OutcomeUnknown` carries those generated here.
        """
        jobs = new_jobs(self._template, calls, job_ids)
        if not jobs:
            return []
        try:
            created = await self.app.enqueue_new(jobs, using=self._template.using)
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, jobs) from error
        return JobHandles(self.app, [job.id for job in jobs], created)


class TaskDecorator(Protocol):
    """The result of `@app.task(…)`: makes a task of a function and keeps its type."""

    def __call__(self, function: Callable[Q, S], /) -> TaskHandle[Q, S]:
        """Register the function."""
        ...


class SyncTask(Sync[TaskHandle[..., Any]]):
    """`task.sync`."""

    name: str
    enqueue = Blocking(TaskHandle[..., Any].enqueue)
    enqueue_many = Blocking(TaskHandle[..., Any].enqueue_many)

    def options(self, **options: Unpack[JobOptions]) -> SyncTask:
        """Return the blocking counterpart of this task with other options."""
        return self.target.options(**options).sync
