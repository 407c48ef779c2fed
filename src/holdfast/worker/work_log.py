"""The log lines of a worker about its work: an observer like any other."""

from __future__ import annotations

import logging
from collections import Counter

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import JobEnd, JobRescue, StoreFailure, WorkerDrain, WorkerEnd, WorkerStart
from holdfast.model.counted import counted
from holdfast.model.job import JobState
from holdfast.model.outcome import ASKED, Failure

_logger = logging.getLogger("holdfast.worker")


def log_work(hooks: Hooks) -> None:
    """Log what happens; at DEBUG also the end of each attempt. The level is looked up here, not for each job."""
    hooks.job_retry(_log_retry)
    hooks.job_fail(_log_failure)
    hooks.job_rescue(_log_rescue)
    hooks.worker_start(_log_start)
    hooks.worker_drain(_log_drain)
    hooks.worker_end(_log_worker_end)
    hooks.store_fail(_log_store_failure)
    if _logger.isEnabledFor(logging.DEBUG):
        hooks.job_end(_log_end)


def _log_end(end: JobEnd) -> None:
    milliseconds = end.duration.total_seconds() * 1000
    _logger.debug("job %s (%s) %s in %.1f ms", end.job.id, end.job.task, end.outcome, milliseconds)


def _log_retry(end: JobEnd) -> None:
    job, failure = end.job, end.failure
    delay = 0.0 if end.delay is None else end.delay.total_seconds()
    if end.is_asked:
        reason = "" if failure is None or failure.message == ASKED else f": {failure.message}"
        _logger.info("job %s (%s) will retry in %g s, as requested%s", job.id, job.task, delay, reason)
        return
    _logger.warning(
        "job %s (%s) failed at attempt %d of %d, retrying in %.1f s: %s",
        job.id, job.task, job.used_attempts, job.max_attempts, delay, _text(failure),
    )  # fmt: skip


def _log_failure(end: JobEnd) -> None:
    _logger.error("job %s (%s) failed: %s", end.job.id, end.job.task, _text(end.failure))


def _text(failure: Failure | None) -> str:
    """Return the error and where user code raised it."""
    if failure is None:
        return ""
    place = f" ({failure.location})" if failure.location else ""
    return f"{failure.error_class}: {failure.message}{place}"


def _log_rescue(rescue: JobRescue) -> None:
    """Log in one line what became of the jobs of a dead worker, and each job at DEBUG."""
    counts, total = Counter(job.state for job in rescue.jobs), len(rescue.jobs)
    if set(counts) == {JobState.READY}:
        became = " is ready again" if total == 1 else " are ready again"
    else:
        ready = counts.pop(JobState.READY, 0)
        ends = [f"{count:,} {state}" for state, count in sorted(counts.items())]
        became = ": " + ", ".join([f"{ready:,} ready again", *ends])
    _logger.warning("%s of worker %s (%s)%s", counted(total, "job"), rescue.worker_id, rescue.why, became)
    for job in rescue.jobs:
        _logger.debug("job %s (%s) of worker %s is now %s", job.job_id, job.task, rescue.worker_id, job.state)


def _log_start(start: WorkerStart) -> None:
    _logger.info("%s is running on %s", start.name, start.store)


def _log_drain(drain: WorkerDrain) -> None:
    _logger.info("%s: draining; signal again to release running jobs and exit", drain.name)


def _log_worker_end(end: WorkerEnd) -> None:
    _logger.info("%s has ended%s", end.name, "" if end.totals is None else f": {end.totals}")


def _log_store_failure(failure: StoreFailure) -> None:
    _logger.warning("%s failed, retrying: %s", failure.what, failure.error)
