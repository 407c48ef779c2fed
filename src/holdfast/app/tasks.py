"""What `@app.task` returns: the way to enqueue jobs of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from holdfast.app.job_handle import JobHandle, JobHandles
from holdfast.app.sync import Sync
from holdfast.app.sync_types import SyncTask
from holdfast.errors import OutcomeUnknown
from holdfast.jobs.enqueue import EnqueueOptions, check_options, new_job, new_jobs, unknown_enqueue
from holdfast.jobs.task import Task

if TYPE_CHECKING:
    from holdfast.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
_DEFAULTS = EnqueueOptions()


class TaskHandle(Generic[P, R]):
    """A task of an app. Calling it calls the function itself, at once and here; `enqueue` makes a job of the call."""

    def __init__(self, app: App, task: Task, function: Callable[P, R], options: EnqueueOptions = _DEFAULTS) -> None:
        self.app = app
        self.task = task
        self._function = function
        self._options = options
        self.__name__ = task.name
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no task."""
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
        return cast("SyncTask", TaskSync(self, self.app.portal))

    def options(  # noqa: PLR0913 - the options of a job, by name
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        order_key: str | None = None,
        job_id: str | UUID | None = None,
        using: object = None,
    ) -> TaskHandle[P, R]:
        """Return this task with other options for the jobs enqueued through it.

        `delay` counts from the store's now, `run_at` is an aware datetime. `priority` is a head start of a minute for
        each step. Jobs of one queue with the same `order_key` run one at a time, in the order of their enqueue.
        `job_id` (a UUID) makes an enqueue safe to repeat. `using` joins the caller's own transaction.
        """
        options = check_options(
            queue=queue,
            delay=delay,
            run_at=run_at,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            headers=headers,
            order_key=order_key,
            job_id=job_id,
            using=using,
        )
        return TaskHandle(self.app, self.task, self._function, options)

    async def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle:
        """Make a job of this call and return once the store has it for good."""
        job = new_job(self.task, args, kwargs, self._options)
        try:
            (created,) = await self.app.enqueue_new([job], using=self._options.using)
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

        `job_ids` (UUIDs, one for each call) make it safe to repeat; `OutcomeUnknown` tells those that were made here.
        """
        jobs = new_jobs(self.task, calls, self._options, job_ids)
        if not jobs:
            return []
        try:
            created = await self.app.enqueue_new(jobs, using=self._options.using)
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, jobs) from error
        return JobHandles(self.app, [job.id for job in jobs], created)


class TaskSync(Sync[TaskHandle[..., Any]]):
    """`task.sync`."""

    def options(self, **options: Any) -> SyncTask:
        """Return the blocking face of this task with other options."""
        return self._target.options(**options).sync
