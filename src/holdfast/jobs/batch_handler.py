"""The settings and the signature of a task that runs in batches.

```python
@app.task(batch=100, linger=0.02)
async def charge(ctx: BatchContext, calls: list[Call[Order]]) -> None: ...

await charge.enqueue(Order(7))
```

A job of such a task has one argument, whose type is that of the calls. It is stored under the name `argument`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter
from typing import Any

from holdfast.errors import ConfigError
from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.call import Call
from holdfast.model.duration import to_span
from holdfast.model.numbers import whole_number
from holdfast.runtime.parameters import names_known_to
from holdfast.runtime.signature import Signature

MAX_BATCH = 10_000
LINGER = 0.02
"""How long a batch waits for more jobs, in seconds, if the task does not say it."""
_SHAPE = "async def handler(ctx: BatchContext, calls: list[Call[int]])"


def check_batch(batch: object) -> int | None:
    """Return the largest number of calls of a batch, None without batches, or raise `ConfigError`."""
    return None if batch is None else whole_number(batch, "batch", 1, MAX_BATCH)


def check_linger(linger: float | timedelta | None, batch: int | None) -> float:
    """Return the time in seconds that a batch waits for more jobs, or raise `ConfigError`."""
    if linger is None:
        return LINGER
    if batch is None:
        raise ConfigError("linger=… is only for tasks that run in batches: pass batch=…, or leave it out")
    return to_span(linger, "linger").total_seconds()


def batch_signature(handler: Callable[..., Any], task: str) -> Signature:
    """Return the signature of the jobs of a batch handler: one argument, of the type that its calls declare."""
    names = list(inspect.signature(handler).parameters)
    types = _annotations(handler, task)
    if len(names) != 2:  # noqa: PLR2004 - the context and the calls
        raise ConfigError(f"task {task!r}: a handler of batches takes a context and a list of calls, as in {_SHAPE}")
    context, calls = names
    if not _is(types.get(context, Any), BatchContext):
        raise ConfigError(f"task {task!r}: annotate {context} as BatchContext, as in {_SHAPE}")
    argument = _argument_type(types.get(calls, Any), task, calls)
    parameter = Parameter("argument", Parameter.POSITIONAL_OR_KEYWORD, annotation=argument)
    return Signature(task, [parameter], context)


def _annotations(handler: Callable[..., Any], task: str) -> dict[str, Any]:
    known: dict[str, Any] = {"BatchContext": BatchContext, "Call": Call}
    function = inspect.unwrap(handler)
    try:
        return typing.get_type_hints(function, globalns=known | names_known_to(handler), include_extras=True)
    except Exception as error:
        raise ConfigError(
            f"task {task!r}: its annotations cannot be resolved ({error}): import or define the types at the top of "
            "the handler's module, not under TYPE_CHECKING"
        ) from error


def _argument_type(annotation: Any, task: str, name: str) -> Any:
    """Return T of `list[Call[T]]` or another sequence of calls."""
    items = typing.get_args(annotation)
    call = items[0] if items else Any
    if not _is(call, Call):
        raise ConfigError(f"task {task!r}: annotate {name} as a list of calls, as in {_SHAPE}")
    types = typing.get_args(call)
    return types[0] if types else Any


def _is(annotation: Any, cls: type) -> bool:
    found = typing.get_origin(annotation) or annotation
    return isinstance(found, type) and issubclass(found, cls)
