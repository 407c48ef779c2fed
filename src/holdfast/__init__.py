"""Holdfast: durable work distribution. Each piece of work is done by one worker at a time, and takes effect once."""

from __future__ import annotations

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
