"""Holdfast: background jobs and event streams on the database you already have; no job is lost, no effect doubled.

The exported names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.batch import Batch
    from holdfast.app.call_graph import chain, group
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
        UniqueConflict,
        Unsupported,
        VersionConflict,
    )
    from holdfast.jobs.batch_context import BatchContext
    from holdfast.jobs.call import Call
    from holdfast.jobs.context import Context
    from holdfast.model.allocation import Timing
    from holdfast.model.event import Appended
    from holdfast.model.job import Job, JobState, LeasedJob
    from holdfast.model.limits import Limit
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
    "BatchContext",
    "ByException",
    "Call",
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
    "Limit",
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
    "UniqueConflict",
    "Unsupported",
    "VersionConflict",
    "Worker",
    "WorkerBroken",
    "chain",
    "group",
]

_MODULES = {  # the module of each exported name, as type checkers see it above
    "holdfast.app.app": "App",
    "holdfast.app.batch": "Batch",
    "holdfast.app.call_graph": "chain group",
    "holdfast.app.claimed_job": "ClaimedJob",
    "holdfast.app.job_handle": "JobHandle",
    "holdfast.app.tasks": "TaskHandle",
    "holdfast.errors": """
        ArgumentsError CategoryNotFound ConfigError ConsumerNotFound HoldfastError JobCancelled JobFailed
        JobNotFound LeaseLost NotFound OutcomeUnknown PayloadError PrivilegeMissing SchemaMismatch StoreError
        StoreUnavailable TaskNotFound TransactionConflict TransactionExpired UniqueConflict
        Unsupported VersionConflict""",
    "holdfast.jobs.batch_context": "BatchContext",
    "holdfast.jobs.call": "Call",
    "holdfast.jobs.context": "Context",
    "holdfast.model.allocation": "Timing",
    "holdfast.model.event": "Appended",
    "holdfast.model.job": "Job JobState LeasedJob",
    "holdfast.model.limits": "Limit",
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
        module = _import_module(_PLACES[name])
        if not hasattr(module, name):  # it is being imported, and what it imports has come back here
            raise ImportError(_import_module("holdfast.runtime.hidden_modules").circle(name))
        value = globals()[name] = getattr(module, name)
        return value

    def __dir__() -> list[str]:
        """List the exported names."""
        return sorted({*globals(), *__all__})
