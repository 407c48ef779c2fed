"""Hooks: named places where observers are called with what happened.

```text
   plain function   called at once, where it happened: must be quick
   async def        called later, one value after another, in a task beside the work; at most `MOST_WAITING` values
                    wait for it, further ones are dropped
```

An observer cannot fail what it observes: its errors are logged, per observer at most once in `QUIET` seconds. A hook
without observers costs one look at an empty tuple, and no value is made:

    if hooks.job_start.observers:
        hooks.job_start.emit(JobStart(…))
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from holdfast.errors import ConfigError
from holdfast.hooks.middleware import Middlewares
from holdfast.hooks.sending import Sending
from holdfast.hooks.values import (
    HandlingEnd,
    HandlingStart,
    JobClaim,
    JobEnd,
    JobEnqueue,
    JobFlush,
    JobRescue,
    JobStart,
    LeaseExtend,
    LeaseLoss,
    PartitionMove,
    StoreFailure,
    WorkerDrain,
    WorkerEnd,
    WorkerReport,
    WorkerStart,
)

T = TypeVar("T")
R = TypeVar("R")
MOST_WAITING: Final = 1000
QUIET: Final = 60.0  # seconds between two log lines about the same observer
SLOW: Final = 0.1  # seconds after which a plain function is reported as slow
_SETTLE_TIMEOUT: Final = 5.0

_logger = logging.getLogger("holdfast.hooks")
monotonic = time.monotonic


class Observer(Generic[T]):
    """A callback of a hook, and what was logged about it."""

    def __init__(self, hook: str, callback: Callable[[T], object]) -> None:
        self.callback = callback
        self._hook = hook
        self._is_async = _is_async(callback)
        self._waiting: dict[asyncio.AbstractEventLoop, deque[T]] = {}
        self._tasks: dict[asyncio.Task[None], asyncio.AbstractEventLoop] = {}
        self._quiet_until = 0.0
        self._unsaid = 0

    def call(self, value: T) -> None:
        """Call the callback, or schedule the call; never raises, except for KeyboardInterrupt."""
        began = monotonic()
        try:
            if self._is_async:
                self._enqueue(value)
            elif inspect.iscoroutine(result := self.callback(value)):
                result.close()
                raise TypeError("it returned a coroutine: register the async function itself")  # noqa: TRY301
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an observer fails nothing
            self._complain("failed; what it observed is not affected", error)
        else:
            if monotonic() - began > SLOW:
                self._complain(f"took {monotonic() - began:.1f} s and held up everything else: make it an async def")

    def _enqueue(self, value: T) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = deque([value])
            # An empty context: a transaction that is open where this happened is not open for the observer.
            task = loop.create_task(self._work_off(loop, waiting), context=contextvars.Context())
            self._tasks[task] = loop
            task.add_done_callback(self._tasks.pop)
        elif len(waiting) < MOST_WAITING:
            waiting.append(value)
        else:
            self._complain(f"is too slow: {MOST_WAITING} values wait for it, and further ones are dropped")

    async def _work_off(self, loop: asyncio.AbstractEventLoop, waiting: deque[T]) -> None:
        callback: Callable[[T], Any] = self.callback
        try:
            while waiting:
                try:
                    await callback(waiting[0])
                except BaseException as error:
                    task = asyncio.current_task()
                    if isinstance(error, KeyboardInterrupt) or (task is not None and task.cancelling()):
                        raise
                    self._complain("failed; what it observed is not affected", error)
                waiting.popleft()
        finally:
            del self._waiting[loop]

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[None]]:
        """Return the task that calls the callback in this event loop, if values wait for it."""
        return [task for task, its_loop in self._tasks.items() if its_loop is loop]

    def _complain(self, what: str, error: BaseException | None = None) -> None:
        now = monotonic()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid:,} more problems with it since it was last reported)" if self._unsaid else ""
        self._quiet_until, self._unsaid = now + QUIET, 0
        _logger.error("the observer %s of %r %s%s", _name(self.callback), self._hook, what, more, exc_info=error)


class Hook(Generic[T]):
    """One kind of happening and its observers. Called with a function, as a decorator, it adds an observer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.observers: tuple[Observer[T], ...] = ()

    def __call__(self, callback: Callable[[T], R]) -> Callable[[T], R]:
        """Add an observer, unless it is there already; returns it unchanged."""
        if not callable(cast("object", callback)):
            raise ConfigError(f"app.on({self.name!r}): {callback!r} is not a function: pass one that takes the value")
        if all(observer.callback != callback for observer in self.observers):
            self.observers = (*self.observers, Observer(self.name, callback))
        return callback

    def remove(self, callback: Callable[[T], object]) -> None:
        """Remove an observer; values that wait for it are still delivered. Unknown ones are ignored."""
        self.observers = tuple(observer for observer in self.observers if observer.callback != callback)

    def emit(self, value: T) -> None:
        """Call the observers in the order in which they were added."""
        for observer in self.observers:
            observer.call(value)


class Hooks:
    """All hooks of an app, and its middleware."""

    def __init__(self) -> None:
        self.middleware = Middlewares()
        self.sending: tuple[Sending, ...] = ()
        """What runs around each enqueue and append, the outermost first; a plain tuple, so that none costs nothing."""
        self.job_enqueue = Hook[JobEnqueue]("job.enqueue")
        self.job_start = Hook[JobStart]("job.start")
        self.job_end = Hook[JobEnd]("job.end")
        self.job_retry = Hook[JobEnd]("job.retry")
        self.job_fail = Hook[JobEnd]("job.fail")
        self.job_rescue = Hook[JobRescue]("job.rescue")
        self.job_claim = Hook[JobClaim]("job.claim")
        self.job_flush = Hook[JobFlush]("job.flush")
        self.lease_extend = Hook[LeaseExtend]("lease.extend")
        self.lease_lose = Hook[LeaseLoss]("lease.lose")
        self.worker_start = Hook[WorkerStart]("worker.start")
        self.worker_drain = Hook[WorkerDrain]("worker.drain")
        self.worker_report = Hook[WorkerReport]("worker.report")
        self.worker_end = Hook[WorkerEnd]("worker.end")
        self.event_start = Hook[HandlingStart]("event.start")
        self.event_end = Hook[HandlingEnd]("event.end")
        self.partition_move = Hook[PartitionMove]("partition.move")
        self.store_fail = Hook[StoreFailure]("store.fail")
        self.store_recover = Hook[StoreFailure]("store.recover")
        self._by_name: dict[str, Hook[Any]] = {
            hook.name: hook for hook in vars(self).values() if isinstance(hook, Hook)
        }

    def named(self, name: str) -> Hook[Any]:
        """Return a hook; raises `ConfigError` with the names of all if there is none of this name."""
        hook = self._by_name.get(name)
        if hook is None:
            raise ConfigError(f"there is no hook {name!r}: choose one of {', '.join(self._by_name)}")
        return hook

    async def settle(self, timeout: float = _SETTLE_TIMEOUT, *, cancels: bool = False) -> None:
        """Wait, until the timeout, for the async observers in this event loop; `cancels` those that are late."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        observers = [observer for hook in self._by_name.values() for observer in hook.observers]
        tasks = {task for observer in observers for task in observer.of_loop(loop) if task is not this}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout)
        if late and cancels:
            _logger.error("%d observers did not end within %g s and are cancelled", len(late), timeout)
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=timeout)


def _is_async(callback: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def _name(callback: object) -> str:
    return f"{getattr(callback, '__module__', '')}.{getattr(callback, '__qualname__', type(callback).__qualname__)}"
