"""A task: a named handler for jobs, with the defaults of its jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, TypedDict, Unpack, cast

import msgspec

from holdfast.errors import ConfigError, TaskNotFound
from holdfast.jobs.batch_handler import batch_signature, check_batch, check_linger
from holdfast.jobs.context import Context
from holdfast.jobs.unique import OnConflictName, UniqueFor, UniqueSetting, unique_setting
from holdfast.model.duration import to_span
from holdfast.model.limits import Limit, check_limited
from holdfast.model.names import check_name
from holdfast.model.numbers import whole_number
from holdfast.model.retry import RetryPolicy, RetrySetting, policy_of
from holdfast.model.turn import MAX_PRIORITY
from holdfast.runtime.executor import Executor, ExecutorSetting, choose_executor, reference_of
from holdfast.runtime.handler_checks import refuse_generator
from holdfast.runtime.parameters import read_returns
from holdfast.runtime.signature import Signature
from holdfast.runtime.unknown_settings import refuse_unknown

MAX_ATTEMPTS = 1_000_000


class Task(msgspec.Struct, frozen=True):
    """A task: its handler and the defaults of its jobs; checked."""

    name: str
    handler: Callable[..., Any]
    signature: Signature
    executor: Executor
    queue: str
    max_attempts: int
    priority: int
    timeout: float | None
    retry: RetryPolicy
    returns: Any = Any
    """The annotated type of what the handler returns, to which results are decoded."""
    isolate: bool = True
    unique: UniqueSetting | None = None
    limit: Limit | None = None
    key_limit: Limit | None = None
    batch: int | None = None
    """The largest number of jobs that one call of the handler receives; None: the handler takes one job."""
    linger: float = 0.0
    """How long a batch that is not full waits for more jobs, in seconds."""

    @property
    def reference(self) -> tuple[str, str] | None:
        """The module and qualified name by which a child process imports the task; None if it cannot be imported."""
        return reference_of(self.handler)


class TaskSettings(TypedDict, total=False):
    """The settings of `@app.task(…)`: the only list of them.

    `retry` is seconds, a policy such as `Exponential()`, or a function `(attempt, error) -> seconds | None`.
    `executor="process"` runs the handler in a child process; by default an `async def` runs in the event loop and a
    plain function in a thread. `timeout` limits one attempt. `isolate=False`: a job whose worker died is not run in a
    child process next; if it was the cause, it takes the jobs beside it down again, until it has failed.
    `unique_key`, `unique`, `unique_for` and `on_conflict` are the defaults of the options of its jobs.
    `limit`, and `key_limit` for the jobs of each `limit_key`, are written to the store when a worker starts, if they
    were changed in the code since the last time.
    `batch` makes one call of the handler for up to this many jobs, after waiting at most `linger` for more of them; see
    `docs/howto/batches.md`.
    """

    name: str | None
    queue: str
    max_attempts: int
    priority: int
    timeout: float | timedelta | None
    retry: RetrySetting
    executor: ExecutorSetting | None
    isolate: bool
    unique_key: str | None
    unique: bool
    unique_for: UniqueFor | None
    on_conflict: OnConflictName | None
    limit: Limit | None
    key_limit: Limit | None
    batch: int | None
    linger: float | timedelta | None


TASK_SETTINGS: Final = tuple(TaskSettings.__annotations__)


def make_task(handler: Callable[..., Any], **settings: Unpack[TaskSettings]) -> Task:
    """Check the settings of a task and read the signature of its handler; raises `ConfigError` with the remedy."""
    refuse_unknown("@app.task", settings, TASK_SETTINGS)
    _check_callable(handler)
    task_name = check_name("task", settings.get("name") or _default_name(handler))
    refuse_generator(handler, f"task {task_name!r}")
    batch = check_batch(settings.get("batch"))
    linger = check_linger(settings.get("linger"), batch)
    if batch is not None:
        _check_batched(task_name, settings)
        signature = batch_signature(handler, task_name)
    else:
        signature = Signature.of(handler, task=task_name, context_type=Context)
    task = Task(
        name=task_name,
        handler=handler,
        signature=signature,
        executor=choose_executor(handler, f"task {task_name!r}", settings.get("executor")),
        queue=check_name("queue", settings.get("queue", "default")),
        max_attempts=check_max_attempts(settings.get("max_attempts", 5)),
        priority=check_priority(settings.get("priority", 0)),
        timeout=check_timeout(settings.get("timeout")),
        retry=policy_of(settings.get("retry")),
        returns=read_returns(handler) if batch is None else Any,
        isolate=_check_isolate(settings.get("isolate", True), settings.get("executor")),
        unique=unique_setting(settings),
        limit=check_limited(settings.get("limit")),
        key_limit=check_limited(settings.get("key_limit")),
        batch=batch,
        linger=linger,
    )
    if task.executor is Executor.PROCESS and task.reference is None:
        message = (
            f"task {task_name!r}: {_qualified_name(handler)} has no name in a module, so a child process cannot import "
            'it: move it to the top of a module, or leave out executor="process"'
        )
        raise ConfigError(message)
    return task


def _check_batched(name: str, settings: TaskSettings) -> None:
    if settings.get("executor") == Executor.PROCESS:
        raise ConfigError(
            f'task {name!r}: batch=… and executor="process" exclude each other: a child process runs one job at a '
            "time. Leave out one of them"
        )
    if settings.get("max_attempts", 5) == 1:
        raise ConfigError(
            f"task {name!r}: with max_attempts=1 its jobs could not run in batches, because a job runs alone in its "
            "last attempt: pass at least 2, or leave out batch=…"
        )


def _check_callable(handler: object) -> None:
    if isinstance(handler, str):
        raise ConfigError(f"@app.task({handler!r}): pass the settings of a task by name, as in name={handler!r}")
    if not callable(handler):
        raise ConfigError(f"@app.task({handler!r}): not a function: pass settings by name, as in queue=…")
    name: str = getattr(handler, "__qualname__", "")
    if inspect.isclass(handler):
        raise ConfigError(
            f"@app.task: {name} is a class: make it a function, or register the method of an object, as in "
            f"app.task({name}().run)"
        )
    owner, _, own = name.rpartition(".")
    if owner and not owner.endswith("<locals>") and _first_parameter(handler) in {"self", "cls"}:
        raise ConfigError(
            f"@app.task: {name} is a method, and a worker has no object to call it on: make it a function outside the "
            f"class, or register the method of an object, as in app.task(mailer.{own})"
        )
    if _first_parameter(handler) == "self":  # a bound task of Celery
        raise ConfigError(
            f"@app.task: {name} is a function with a parameter self: if the worker is to fill it in, annotate it as "
            f"Context, as in def {own}(ctx: Context, …); otherwise rename it"
        )


def _first_parameter(handler: object) -> str | None:
    """Return the name of the first parameter of a plain function; None for others, such as methods of an object."""
    code = getattr(handler, "__code__", None) if inspect.isfunction(handler) else None
    return code.co_varnames[0] if code is not None and code.co_argcount else None


def _default_name(handler: Callable[..., Any]) -> str:
    name: str = getattr(handler, "__name__", type(handler).__name__)
    return name


def check_max_attempts(max_attempts: object) -> int:
    """Return a valid number of attempts or raise `ConfigError`."""
    return whole_number(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)


def check_priority(priority: object) -> int:
    """Return a valid priority or raise `ConfigError`."""
    return whole_number(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def check_timeout(timeout: float | timedelta | None) -> float | None:
    """Return a timeout in seconds, None for no limit, or raise `ConfigError`."""
    if timeout is None:
        return None
    seconds = to_span(timeout, "timeout").total_seconds()
    if seconds <= 0:
        message = "timeout=0 would end every attempt before it begins: pass seconds, or None for no limit"
        raise ConfigError(message)
    return seconds


def _check_isolate(isolate: object, executor: object) -> bool:
    if not isinstance(isolate, bool):
        raise ConfigError(f"isolate={isolate!r} is not a bool: pass True or False")
    if not isolate and executor == Executor.PROCESS:
        raise ConfigError('isolate=False contradicts executor="process": leave out one of them')
    return isolate


class Tasks:
    """The tasks of an app, by name: the only mapping from a stored name to a handler."""

    def __init__(self) -> None:
        self._by_name: dict[str, Task] = {}

    def add(self, task: Task) -> None:
        """Register a task; raises `ConfigError` if the name is taken."""
        known = self._by_name.get(task.name)
        if known is not None:
            message = (
                f"task {task.name!r} is already registered ({_place(known)}): "
                f"give this one ({_place(task)}) another name, as in @app.task(name=…)"
            )
            raise ConfigError(message)
        self._by_name[task.name] = task

    def get(self, name: str) -> Task:
        """Return a task by its name, or raise `TaskNotFound`."""
        if not isinstance(cast("object", name), str):
            remedy = "a task enqueues itself, as in charge.enqueue(7), and so does a graph: chain(…).enqueue()"
            raise ConfigError(f"pass the name of a task, not {name!r}: {remedy}")
        task = self._by_name.get(name)
        if task is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            message = f"no task is named {name!r}; registered tasks: {known}"
            raise TaskNotFound(message)
        return task

    def __iter__(self) -> Iterator[Task]:
        """Iterate over all tasks."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tasks."""
        return tuple(self._by_name)


def _qualified_name(handler: Callable[..., Any]) -> str:
    name: str = getattr(handler, "__qualname__", type(handler).__qualname__)
    return name


def _place(task: Task) -> str:
    return f"{task.handler.__module__}.{_qualified_name(task.handler)}"
