"""Observers that feed the metrics of jobs; they keep nothing but counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from prometheus_client import Counter, Gauge, Histogram

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import (
    JobClaim,
    JobEnd,
    JobEnqueue,
    JobFlush,
    JobRescue,
    JobStart,
    LeaseExtend,
    LeaseLoss,
    WorkerReport,
)
from holdfast.model.job import LeasedJob
from holdfast.model.turn import run_at_of
from holdfast.telemetry.families import OTHER, BoundedNames, JobFamilies


class _OfTask(NamedTuple):
    """The series of one queue and task, so that a job looks up no labels."""

    enqueued: Counter
    waited: Histogram
    ran: Histogram
    running: Gauge
    labels: tuple[str, str]


class JobMetrics:
    """Counts what the hooks of an app report."""

    def __init__(self, families: JobFamilies) -> None:
        self._families = families
        self._queues, self._pairs = BoundedNames(), BoundedNames()
        self._series: dict[tuple[str, str], _OfTask] = {}

    def observe(self, hooks: Hooks) -> None:
        """Add the observers."""
        hooks.job_enqueue(self.enqueued)
        hooks.job_start(self.started)
        hooks.job_end(self.ended)
        hooks.job_rescue(self.rescued)
        hooks.job_claim(self.claimed)
        hooks.job_flush(self.flushed)
        hooks.lease_extend(self.extended)
        hooks.lease_lose(self.lost)
        hooks.worker_report(self.reported)

    def _of(self, queue: str, task: str) -> _OfTask:
        found = self._series.get((queue, task))
        if found is None:
            families = self._families
            names = (queue, task) if self._pairs.admits((queue, task)) else (self._queues.label(queue), OTHER)
            found = _OfTask(
                families.enqueued.labels(*names),
                families.waited.labels(*names),
                families.ran.labels(*names),
                families.running.labels(names[0]),
                names,
            )
            if names == (queue, task):  # otherwise every further name would be kept
                self._series[queue, task] = found
        return found

    def enqueued(self, enqueue: JobEnqueue) -> None:
        """Count a job that is new."""
        if enqueue.created:
            self._of(enqueue.job.queue, enqueue.job.task).enqueued.inc()

    def started(self, start: JobStart) -> None:
        """Count a running job, and how long it has waited."""
        series = self._of(start.job.queue, start.job.task)
        series.running.inc()
        series.waited.observe(waited_seconds(start.job))

    def ended(self, end: JobEnd) -> None:
        """Count the end of an attempt."""
        series = self._of(end.job.queue, end.job.task)
        series.running.dec()
        series.ran.observe(end.duration.total_seconds())
        self._families.finished.labels(*series.labels, end.outcome).inc()

    def rescued(self, rescue: JobRescue) -> None:
        """Count the jobs of a dead worker."""
        for job in rescue.jobs:
            self._families.rescued.labels(self._queues.label(job.queue), rescue.reason).inc()

    def claimed(self, claim: JobClaim) -> None:
        """Measure a claim."""
        self._families.claimed.labels(served(claim.queues)).observe(claim.duration.total_seconds())

    def flushed(self, flush: JobFlush) -> None:
        """Measure a write of outcomes."""
        self._families.flushed.labels(served(flush.queues)).observe(flush.duration.total_seconds())

    def extended(self, extension: LeaseExtend) -> None:
        """Count extended leases, and measure how late they were extended."""
        for queue in extension.queues:
            self._families.extended.labels(self._queues.label(queue)).inc()
        self._families.margin.observe(extension.margin.total_seconds())

    def lost(self, loss: LeaseLoss) -> None:
        """Count a lost lease."""
        self._families.lost.labels(self._queues.label(loss.job.queue), loss.found_by).inc()

    def reported(self, report: WorkerReport) -> None:
        """Set what the worker reports regularly."""
        if report.slots:
            queues = served(report.queues)
            self._families.slots.labels(queues).set(report.slots)
            self._families.buffered.labels(queues).set(report.buffered)


_made: WeakValueDictionary[int, JobMetrics] = WeakValueDictionary()
"""By the identity of what they feed, which they keep alive; the hooks of the apps that they observe keep them."""


def metrics_of(families: JobFamilies) -> JobMetrics:
    """Return the observers that feed these metrics: always the same, so that an app measured twice counts once."""
    return _made.setdefault(id(families), JobMetrics(families))


def served(queues: Sequence[str] | None) -> str:
    """Return the label for the queues that a worker serves."""
    return "*" if queues is None else ",".join(queues)


def waited_seconds(job: LeasedJob) -> float:
    """Return how long a job has been due, by this machine's clock; never negative, if the store's clock is ahead."""
    due = run_at_of(job.turn, job.priority)
    return max(0.0, (time.time_ns() // 1000 - due) / 1_000_000)
