"""What happens in a process that runs jobs and events: hooks report it, middleware runs around each handler.

`app.on(…)` and `app.middleware` register; this package has the values that they receive.
"""

from __future__ import annotations

from holdfast.hooks.middleware import HandlerCall
from holdfast.hooks.values import (
    HandlingEnd,
    HandlingStart,
    JobEnd,
    JobEnqueue,
    JobRescue,
    JobStart,
    PartitionMove,
    StoreFailure,
    WorkerDrain,
    WorkerEnd,
    WorkerReport,
    WorkerStart,
)

__all__ = [
    "HandlerCall",
    "HandlingEnd",
    "HandlingStart",
    "JobEnd",
    "JobEnqueue",
    "JobRescue",
    "JobStart",
    "PartitionMove",
    "StoreFailure",
    "WorkerDrain",
    "WorkerEnd",
    "WorkerReport",
    "WorkerStart",
]
