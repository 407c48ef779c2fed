"""What happens in a process that runs jobs and events: hooks report it, middleware runs around each handler.

`app.on(…)` and `app.middleware` register; this package has the values that they receive.
"""

from __future__ import annotations

from holdfast.hooks.middleware import HandlerCall
from holdfast.hooks.sending import SendCall
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

__all__ = [
    "HandlerCall",
    "HandlingEnd",
    "HandlingStart",
    "JobClaim",
    "JobEnd",
    "JobEnqueue",
    "JobFlush",
    "JobRescue",
    "JobStart",
    "LeaseExtend",
    "LeaseLoss",
    "PartitionMove",
    "SendCall",
    "StoreFailure",
    "WorkerDrain",
    "WorkerEnd",
    "WorkerReport",
    "WorkerStart",
]
