"""Holdfast: durable work distribution. Each piece of work is done by one worker at a time, and takes effect once.

The exported names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.batch import Batch
    from holdfast.app.claimed_job import ClaimedJob
    from holdfast.app.job_handle import JobHandle
    from holdfast.app.tasks import TaskHandle
    from holdfast.errors import (
        ArgumentsError,
        CategoryNotFound,
        ConfigError,
        ConsumerNotFound,
        HoldfastError,
        JobCancelled,
        JobFailed,
        JobNotFound,
        LeaseLost,
        NotFound,
        OutcomeUnknown,
        PayloadError,
        PrivilegeMissing,
        SchemaMismatch,
        StoreError,
        StoreUnavailable,
        TaskNotFound,
        TransactionConflict,
        TransactionExpired,
        Unsupported,
        VersionConflict,
    )
    from holdfast.jobs.context import Context
    from holdfast.model.allocation import Timing
    from holdfast.model.event import Appended
    from holdfast.model.job import Job, JobState, LeasedJob
    from holdfast.model.outcome import Cancel, Retry, Snooze
    from holdfast.model.retry import ByException, Exponential, Fixed, Linear, RetryPolicy
    from holdfast.store.values import Cancellation, Retention
    from holdfast.streams.context import EventContext
    from holdfast.streams.event import Event
    from holdfast.streams.node import Node
    from holdfast.streams.reading import EventPage
    from holdfast.worker.worker import Worker, WorkerBroken

__all__ = [
    "App",
    "Appended",
    "ArgumentsError",
    "Batch",
    "ByException",
    "Cancel",
    "Cancellation",
    "CategoryNotFound",
    "ClaimedJob",
    "ConfigError",
    "ConsumerNotFound",
    "Context",
    "Event",
    "EventContext",
    "EventPage",
    "Exponential",
    "Fixed",
    "HoldfastError",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobState",
    "LeaseLost",
    "LeasedJob",
    "Linear",
    "Node",
    "NotFound",
    "OutcomeUnknown",
    "PayloadError",
    "PrivilegeMissing",
    "Retention",
    "Retry",
    "RetryPolicy",
    "SchemaMismatch",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "TaskHandle",
    "TaskNotFound",
    "Timing",
    "TransactionConflict",
    "TransactionExpired",
    "Unsupported",
    "VersionConflict",
    "Worker",
    "WorkerBroken",
]

_MODULES = {  # the module of each exported name, as type checkers see it above
    "holdfast.app.app": "App",
    "holdfast.app.batch": "Batch",
    "holdfast.app.claimed_job": "ClaimedJob",
    "holdfast.app.job_handle": "JobHandle",
    "holdfast.app.tasks": "TaskHandle",
    "holdfast.errors": """
        ArgumentsError CategoryNotFound ConfigError ConsumerNotFound HoldfastError JobCancelled JobFailed
        JobNotFound LeaseLost NotFound OutcomeUnknown PayloadError PrivilegeMissing SchemaMismatch StoreError
        StoreUnavailable TaskNotFound TransactionConflict TransactionExpired Unsupported VersionConflict""",
    "holdfast.jobs.context": "Context",
    "holdfast.model.allocation": "Timing",
    "holdfast.model.event": "Appended",
    "holdfast.model.job": "Job JobState LeasedJob",
    "holdfast.model.outcome": "Cancel Retry Snooze",
    "holdfast.model.retry": "ByException Exponential Fixed Linear RetryPolicy",
    "holdfast.store.values": "Cancellation Retention",
    "holdfast.streams.context": "EventContext",
    "holdfast.streams.event": "Event",
    "holdfast.streams.node": "Node",
    "holdfast.streams.reading": "EventPage",
    "holdfast.worker.worker": "Worker WorkerBroken",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker must report an unknown name

    def __getattr__(name: str) -> object:
        """Import an exported name."""
        if name not in _PLACES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = globals()[name] = getattr(_import_module(_PLACES[name]), name)
        return value

    def __dir__() -> list[str]:
        """List the exported names."""
        return sorted({*globals(), *__all__})
