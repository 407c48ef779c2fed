"""The result of `@app.task`: enqueues jobs of a task.

Type checkers check a call of `enqueue` against the handler's signature, without the context that the worker fills in.
A context is taken off if it is the first parameter; a job of a task with batches has the argument of one call. The
overloads choose by `self`, not where the task is made: there a single `Any` in the handler's signature would leave mypy
without a choice, and with an unchecked task.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload
from uuid import UUID

from holdfast.app.job_handle import JobHandle, JobHandles, handle_of
from holdfast.app.retry_unknown import repeat_through_outage
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import OutcomeUnknown
from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.call import Call
from holdfast.jobs.context import Context
from holdfast.jobs.enqueue import JobOptions, TaskCall, job_template, new_job, new_jobs, unknown_enqueue
from holdfast.jobs.task import Task
from holdfast.model.job import NewJob
from holdfast.runtime.effect import is_inside
from holdfast.runtime.unawaited import MethodCall, reports_unawaited
from holdfast.store.values import Enqueued

if TYPE_CHECKING:
    from holdfast.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")
A = TypeVar("A")
F_co = TypeVar("F_co", covariant=True)
# The calls of other queues.
_ENQUEUES = {"apply_async", "defer", "defer_async", "delay", "kiq", "send", "send_with_options"}
_SIGNATURES = {"s", "si", "signature", "subtask"}


class OfFunction(Protocol[F_co]):
    """A task of a function of this type."""

    @property
    def function(self) -> F_co:
        """The function."""
        ...


Waits = Coroutine[Any, Any, R]
OfBatches = OfFunction[Callable[[BatchContext[Any], list[Call[A]]], Any]]
WithContext = OfFunction[Callable[Concatenate[Context[Any], P], R]]
Without = OfFunction[Callable[P, R]]


class TaskHandle(Generic[P, R]):
    """A task of an app. Calling it calls the function directly; `enqueue` makes a job of the call."""

    def __init__(self, app: App, task: Task, function: Callable[P, R], options: JobOptions | None = None) -> None:
        self.app = app
        self.task = task
        self._function = function
        self._options: JobOptions = options or {}
        self._template = job_template(task, **self._options)
        self.__name__ = task.name
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the signature."""
        return f"<task {self.task.signature.text}>"

    if not TYPE_CHECKING:  # a type checker must report an unknown attribute

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`; for the calls of other queues, with the call to use."""
            task = self.__dict__.get("__name__", "task")
            message = f"task {task!r} has no attribute {name!r}"
            if name == "retry":
                message += (
                    ": to run a job again, raise Retry(60) in its handler; to repeat a failed one, holdfast job retry"
                )
            elif name == "apply":
                message += f": to run the function here and now, call it: {task}(…)"
            elif name in _SIGNATURES:
                message += f": a call for chain(…), group(…) or {task}.enqueue_many(…) is {task}.call(…)"
            elif name in _ENQUEUES:
                message += (
                    f": to enqueue a job, call await {task}.enqueue(…), in blocking code {task}.sync.enqueue(…); with "
                    f"options, await {task}.options(delay=5).enqueue(…)"
                )
            raise AttributeError(message, name=name, obj=self)

    @property
    def name(self) -> str:
        """The name under which jobs of this task are stored."""
        return self.task.name

    @property
    def function(self) -> Callable[P, R]:
        """The function itself."""
        return self._function

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same with blocking calls."""
        return SyncTask(self, self.app.portal)

    def options(self, **options: Unpack[JobOptions]) -> TaskHandle[P, R]:
        """Return this task with options for the jobs enqueued through it; they are those of `JobOptions`.

        Options given before are kept; None takes one back.
        """
        return TaskHandle(self.app, self.task, self._function, {**self._options, **options})

    @overload
    def call(self: OfBatches[A], argument: A) -> TaskCall[P, R]: ...
    @overload
    def call(self: WithContext[Q, Any], *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[P, R]: ...
    @overload
    def call(self: Without[Q, Any], *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[P, R]: ...
    def call(self, *args: Any, **kwargs: Any) -> TaskCall[P, R]:
        """Return a call for `enqueue_many`, `chain` or `group`; type checkers check it as they check `enqueue`."""
        return TaskCall(args, kwargs, (self.app, self.task, self._template))

    @overload
    async def enqueue(self: OfBatches[A], argument: A) -> JobHandle[Any]: ...
    @overload
    async def enqueue(self: WithContext[Q, Waits[S]], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
    @overload
    async def enqueue(self: WithContext[Q, S], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
    @overload
    async def enqueue(self: Without[Q, Waits[S]], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
    @overload
    async def enqueue(self: Without[Q, S], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
    @reports_unawaited("nothing was enqueued")  # type: ignore[misc]  # mypy wants `self` by name
    async def enqueue(self, call: MethodCall, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Make a job of this call and return once the store has committed it."""
        call.is_started = True
        job = new_job(self._template, args, kwargs)
        (answer,) = await self._enqueue([job])
        return handle_of(self.app, job.id, answer, self.task.returns)

    @overload
    async def enqueue_many(
        self: OfBatches[A],
        calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle[Any]]: ...
    @overload
    async def enqueue_many(
        self: Without[..., Waits[S]],
        calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle[S]]: ...
    @overload
    async def enqueue_many(
        self: Without[..., S],
        calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle[S]]: ...
    @reports_unawaited("nothing was enqueued")  # type: ignore[misc]  # mypy wants `self` by name
    async def enqueue_many(
        self,
        call: MethodCall,
        /,
        calls: Iterable[TaskCall[Any, Any] | Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle[Any]]:
        """Make a job of each call, all or none.

        A call is `task.call(…)`, a mapping of keyword arguments, or a list or tuple of positional ones. `job_ids`
        (UUIDs, one for each call) make it safe to repeat; `OutcomeUnknown` carries those generated here.
        """
        call.is_started = True
        jobs = new_jobs(self._template, calls, job_ids)
        if not jobs:
            return []
        answers = await self._enqueue(jobs)
        return JobHandles(self.app, [job.id for job in jobs], answers, self.task.returns)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        app, using, patience = self.app, self._template.using, self._template.patience
        try:
            if patience is None or (app.is_open and is_inside(app.backend)):  # a broken transaction stays broken
                return await app.enqueue_new(jobs, using=using)
            return await repeat_through_outage(app.backend, lambda: app.enqueue_new(jobs), patience)
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, jobs) from error


class TaskDecorator(Protocol):
    """The result of `@app.task(…)`: makes a task of a function and keeps its type."""

    def __call__(self, function: Callable[Q, S], /) -> TaskHandle[Q, S]:
        """Register the function."""
        ...


class SyncTask(Sync[TaskHandle[P, R]]):
    """`task.sync`."""

    name: str

    if TYPE_CHECKING:

        @property
        def function(self) -> Callable[P, R]: ...  # noqa: D102
        @overload
        def call(self: OfBatches[A], argument: A) -> TaskCall[P, R]: ...
        @overload
        def call(self: WithContext[Q, Any], *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[P, R]: ...
        @overload
        def call(self: Without[Q, Any], *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[P, R]: ...
        def call(self, *args: Any, **kwargs: Any) -> TaskCall[P, R]: ...  # noqa: D102
        @overload
        def enqueue(self: OfBatches[A], argument: A) -> JobHandle[Any]: ...
        @overload
        def enqueue(self: WithContext[Q, Waits[S]], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
        @overload
        def enqueue(self: WithContext[Q, S], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
        @overload
        def enqueue(self: Without[Q, Waits[S]], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
        @overload
        def enqueue(self: Without[Q, S], *args: Q.args, **kwargs: Q.kwargs) -> JobHandle[S]: ...
        def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...  # noqa: D102
        @overload
        def enqueue_many(
            self: OfBatches[A],
            calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
            *,
            job_ids: Iterable[str | UUID] | None = None,
        ) -> Sequence[JobHandle[Any]]: ...
        @overload
        def enqueue_many(
            self: Without[..., Waits[S]],
            calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
            *,
            job_ids: Iterable[str | UUID] | None = None,
        ) -> Sequence[JobHandle[S]]: ...
        @overload
        def enqueue_many(
            self: Without[..., S],
            calls: Iterable[TaskCall[P, R] | Mapping[str, Any] | Sequence[Any]],
            *,
            job_ids: Iterable[str | UUID] | None = None,
        ) -> Sequence[JobHandle[S]]: ...
        def enqueue_many(self, calls: Any, *, job_ids: Any = None) -> Any: ...  # noqa: D102
    else:
        enqueue = Blocking(TaskHandle.enqueue)
        enqueue_many = Blocking(TaskHandle.enqueue_many)

    def options(self, **options: Unpack[JobOptions]) -> SyncTask[P, R]:
        """Return the blocking counterpart of this task with other options."""
        return self.target.options(**options).sync
