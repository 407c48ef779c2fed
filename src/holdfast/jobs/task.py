"""A task: a named handler for jobs, with the defaults of its jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.errors import ConfigError, TaskNotFound
from holdfast.jobs.context import Context
from holdfast.model.duration import to_span
from holdfast.model.names import check_name
from holdfast.model.retry import RetryPolicy, policy_of
from holdfast.model.turn import MAX_PRIORITY
from holdfast.runtime.handler_checks import refuse_generator
from holdfast.runtime.signature import Signature

MAX_ATTEMPTS = 1_000_000


class Executor(StrEnum):
    """Where a handler runs: in the event loop, in a thread, or in a child process of its own."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


class Task(msgspec.Struct, frozen=True):
    """What a worker and an enqueuing program need to know of a task."""

    name: str
    handler: Callable[..., Any]
    signature: Signature
    executor: Executor
    queue: str
    max_attempts: int
    priority: int
    timeout: float | None
    retry: RetryPolicy

    @property
    def reference(self) -> tuple[str, str] | None:
        """Module and qualified name under which a child process looks for the task; None: there is no such place."""
        name: str | None = getattr(self.handler, "__qualname__", None)  # partials and other objects have none
        return None if name is None or "<" in name else (self.handler.__module__, name)


def make_task(
    handler: Callable[..., Any],
    *,
    name: str | None,
    queue: str,
    max_attempts: int,
    priority: int,
    timeout: float | timedelta | None,
    retry: object,
    executor: str | None,
) -> Task:
    """Check the settings of a task and read the signature of its handler."""
    _check_callable(handler)
    task_name = check_name("task", name or _default_name(handler))
    refuse_generator(handler, f"task {task_name!r}")
    task = Task(
        name=task_name,
        handler=handler,
        signature=Signature.of(handler, task=task_name, context_type=Context),
        executor=_executor(handler, task_name, executor),
        queue=check_name("queue", queue),
        max_attempts=check_max_attempts(max_attempts),
        priority=check_priority(priority),
        timeout=check_timeout(timeout),
        retry=policy_of(retry),
    )
    if task.executor is Executor.PROCESS and task.reference is None:
        message = (
            f"task {task_name!r}: {_qualified_name(handler)} has no name in a module, so a child process cannot import "
            'it: move it to the top of a module, or leave out executor="process"'
        )
        raise ConfigError(message)
    return task


def _check_callable(handler: object) -> None:
    if isinstance(handler, str):
        raise ConfigError(f"@app.task({handler!r}): the settings of a task go by name: pass name={handler!r}")
    if not callable(handler):
        raise ConfigError(f"@app.task({handler!r}): that is no function: pass settings by name, as in queue=…")


def _default_name(handler: Callable[..., Any]) -> str:
    name: str = getattr(handler, "__name__", type(handler).__name__)
    return name


def _executor(handler: Callable[..., Any], name: str, executor: str | None) -> Executor:
    is_async = inspect.iscoroutinefunction(handler)
    if executor is None:
        return Executor.LOOP if is_async else Executor.THREAD
    try:
        chosen = Executor(executor)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in Executor)
        message = f"task {name!r}: executor={executor!r} is not known: choose one of {known}, or leave it out"
        raise ConfigError(message) from None
    if chosen is Executor.LOOP and not is_async:
        message = f'task {name!r}: executor="loop" needs an `async def`; a plain function would block the event loop'
        raise ConfigError(message)
    if chosen is Executor.THREAD and is_async:
        message = f'task {name!r}: executor="thread" needs a plain function; an `async def` runs in the event loop'
        raise ConfigError(message)
    return chosen


def check_max_attempts(max_attempts: object) -> int:
    """Return a number of attempts, or refuse it."""
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or not 1 <= max_attempts <= MAX_ATTEMPTS:
        message = f"max_attempts={max_attempts!r} is not a whole number from 1 to {MAX_ATTEMPTS}"
        raise ConfigError(message)
    return max_attempts


def check_priority(priority: object) -> int:
    """Return a priority, or refuse it."""
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MAX_PRIORITY:
        message = f"priority={priority!r} is not a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        raise ConfigError(message)
    return priority


def check_timeout(timeout: float | timedelta | None) -> float | None:
    """Return a time limit in seconds, or refuse it."""
    if timeout is None:
        return None
    seconds = to_span(timeout, "timeout").total_seconds()
    if seconds <= 0:
        message = "timeout=0 would end every attempt before it began: pass seconds, or None for no limit"
        raise ConfigError(message)
    return seconds


class Tasks:
    """The tasks of an app, by name. The only way from a stored name to a handler."""

    def __init__(self) -> None:
        self._by_name: dict[str, Task] = {}

    def add(self, task: Task) -> None:
        """Register a task; two of one name are refused."""
        known = self._by_name.get(task.name)
        if known is not None:
            message = (
                f"there is a task {task.name!r} already ({_place(known)}): "
                f"give this one ({_place(task)}) another name, as in @app.task(name=…)"
            )
            raise ConfigError(message)
        self._by_name[task.name] = task

    def get(self, name: str) -> Task:
        """Return a task, or raise `TaskNotFound`."""
        task = self._by_name.get(name)
        if task is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            message = f"no task is called {name!r}; registered are: {known}"
            raise TaskNotFound(message)
        return task

    def __iter__(self) -> Iterator[Task]:
        """Go over all tasks."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """Return how many there are."""
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
