"""`app.on`, `app.off` and `app.middleware`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from holdfast.hooks.middleware import Middleware
from holdfast.hooks.observers import Hook, Hooks
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
from holdfast.model.job import NewJob
from holdfast.store.values import Enqueued

T = TypeVar("T")
M = TypeVar("M", bound=Middleware)
To = Callable[[T], object]
OfAttempt = Literal["job.end", "job.retry", "job.fail"]
OfStore = Literal["store.fail", "store.recover"]


class Observing:
    """Adds observers and middleware to the hooks of an app."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    @overload
    def on(self, name: Literal["job.enqueue"], callback: To[JobEnqueue] | None = None) -> Hook[JobEnqueue]: ...
    @overload
    def on(self, name: Literal["job.start"], callback: To[JobStart] | None = None) -> Hook[JobStart]: ...
    @overload
    def on(self, name: OfAttempt, callback: To[JobEnd] | None = None) -> Hook[JobEnd]: ...
    @overload
    def on(self, name: Literal["job.rescue"], callback: To[JobRescue] | None = None) -> Hook[JobRescue]: ...
    @overload
    def on(self, name: Literal["job.claim"], callback: To[JobClaim] | None = None) -> Hook[JobClaim]: ...
    @overload
    def on(self, name: Literal["job.flush"], callback: To[JobFlush] | None = None) -> Hook[JobFlush]: ...
    @overload
    def on(self, name: Literal["lease.extend"], callback: To[LeaseExtend] | None = None) -> Hook[LeaseExtend]: ...
    @overload
    def on(self, name: Literal["lease.lose"], callback: To[LeaseLoss] | None = None) -> Hook[LeaseLoss]: ...
    @overload
    def on(self, name: Literal["worker.start"], callback: To[WorkerStart] | None = None) -> Hook[WorkerStart]: ...
    @overload
    def on(self, name: Literal["worker.drain"], callback: To[WorkerDrain] | None = None) -> Hook[WorkerDrain]: ...
    @overload
    def on(self, name: Literal["worker.report"], callback: To[WorkerReport] | None = None) -> Hook[WorkerReport]: ...
    @overload
    def on(self, name: Literal["worker.end"], callback: To[WorkerEnd] | None = None) -> Hook[WorkerEnd]: ...
    @overload
    def on(self, name: Literal["event.start"], callback: To[HandlingStart] | None = None) -> Hook[HandlingStart]: ...
    @overload
    def on(self, name: Literal["event.end"], callback: To[HandlingEnd] | None = None) -> Hook[HandlingEnd]: ...
    @overload
    def on(self, name: Literal["partition.move"], callback: To[PartitionMove] | None = None) -> Hook[PartitionMove]: ...
    @overload
    def on(self, name: OfStore, callback: To[StoreFailure] | None = None) -> Hook[StoreFailure]: ...
    def on(self, name: str, callback: Callable[[Any], object] | None = None) -> Hook[Any]:
        """Call a function whenever this happens: `app.on("job.end", report)`, or `@app.on("job.end")` above it.

        A plain function is called at once and must be quick; an `async def` is called soon, beside the work. Errors of
        it are logged and affect nothing else. Raises `ConfigError` for an unknown name.
        """
        hook = self._hooks.named(name)
        if callback is not None:
            hook(callback)
        return hook

    def off(self, name: str, callback: Callable[..., object]) -> None:
        """Call a function no longer when this happens; one that was not registered is ignored."""
        self._hooks.named(name).remove(callback)

    def middleware(self, function: M) -> M:
        """Run a function with one `yield` around every handler, which runs at the `yield`; returns it unchanged.

        It receives a `HandlerCall`. The first registered is the outermost. What it raises ends the attempt. Raises
        `ConfigError` if it has no `yield`.
        """
        self._hooks.middleware.add(function)
        return function


def report_enqueue(hook: Hook[JobEnqueue], jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    """Report each job of an enqueue that the store has answered."""
    for job, answer in zip(jobs, answers, strict=True):
        kept = answer if isinstance(answer, str) else job.id
        hook.emit(JobEnqueue(job, kept, created=answer is True))
