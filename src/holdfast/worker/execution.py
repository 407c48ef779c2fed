"""How each task's handler is run; decided once, when the worker starts."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from functools import reduce
from types import FunctionType
from typing import Any

import msgspec

from holdfast.jobs.context import Context
from holdfast.jobs.run import arguments_of
from holdfast.jobs.task import Task
from holdfast.model.job import LeasedJob
from holdfast.runtime.executor import Executor
from holdfast.worker.job_child.process import main_file

_SUSPENDING = frozenset({"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "YIELD_VALUE", "SEND"})


def never_suspends(handler: Callable[..., Any]) -> bool:
    """Return whether a coroutine function cannot suspend: it has no await, async for or async with.

    Such a coroutine runs to its end in one step. It needs no asyncio task, which would cost as much as everything else
    that is done for a small job.
    """
    if not isinstance(handler, FunctionType) or not inspect.iscoroutinefunction(handler):
        return False
    # The implicit first RETURN_GENERATOR/POP_TOP/RESUME of a coroutine is not among these.
    return not any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(handler))


class Execution(msgspec.Struct, frozen=True):
    """How to run one task."""

    task: Task
    handler: Callable[..., Any]
    executor: Executor
    takes_context: bool
    ends_at_once: bool
    is_custom: bool
    isolates: bool
    """Whether its jobs run isolated, in a child process, after their worker was lost."""
    decode: Callable[[str], tuple[list[Any], dict[str, Any]]]

    def arguments(self, job: LeasedJob, context: Context | None) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the handler."""
        if self.is_custom:
            return [job, context], {}
        return arguments_of(self.task, job, context)


def can_isolate(task: Task) -> bool:
    """Return whether a child process would find this task by its name, given the worker's loaded modules.

    It would not if the task was registered by a call and the module has the plain function under that name.
    """
    if task.reference is None:
        return False
    module, qualname = task.reference
    if module == "__main__" and main_file() is None:
        return False
    try:
        found = reduce(getattr, qualname.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return False
    return getattr(found, "task", None) is task


def plan_for(task: Task) -> Execution:
    """Return how to run a task with its own handler."""
    takes_context = task.signature.context is not None
    at_once = (
        task.executor is Executor.LOOP and not takes_context and task.timeout is None and never_suspends(task.handler)
    )
    return Execution(
        task,
        task.handler,
        task.executor,
        takes_context,
        at_once,
        is_custom=False,
        isolates=task.isolate and can_isolate(task),
        decode=task.signature.decode,
    )


def custom_plan_for(task: Task, process: Callable[..., Any]) -> Execution:
    """Return how to run a task through a worker's `process(job, ctx)`."""
    executor = Executor.LOOP if inspect.iscoroutinefunction(process) else Executor.THREAD
    return Execution(
        task,
        process,
        executor,
        takes_context=True,
        ends_at_once=False,
        is_custom=True,
        isolates=False,
        decode=task.signature.decode,
    )
