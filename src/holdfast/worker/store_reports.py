"""Reports claims and flushes to the hooks; makes a value only if it has observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import JobClaim, JobFlush, LeaseLoss
from holdfast.store.values import ClaimRequest, Finish, Verdict
from holdfast.worker.held_leases import HeldLeases


class StoreReports:
    """The reports of one worker's store calls."""

    def __init__(self, hooks: Callable[[], Hooks], held: HeldLeases, request: Callable[[int], ClaimRequest]) -> None:
        self._hooks = hooks
        self._held = held
        self._request = request

    def claimed(self, number: int, seconds: float) -> None:
        """Report the answer to a claim."""
        hook = self._hooks().job_claim
        if hook.observers:
            worker = self._request(0)
            hook.emit(JobClaim(worker.worker_id, worker.queues, number, timedelta(seconds=seconds)))

    def flushed(self, finishes: Sequence[Finish], verdicts: Sequence[Verdict], seconds: float) -> None:
        """Report the answer to a flush, before the machine forgets the leases."""
        hooks = self._hooks()
        if hooks.job_flush.observers:
            worker = self._request(0)
            flush = JobFlush(worker.worker_id, worker.queues, len(finishes), timedelta(seconds=seconds))
            hooks.job_flush.emit(flush)
        if hooks.lease_lose.observers and Verdict.LOST in verdicts:
            self._report_losses(hooks, finishes, verdicts)

    def _report_losses(self, hooks: Hooks, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> None:
        worker_id = self._request(0).worker_id
        for finish, verdict in zip(finishes, verdicts, strict=True):
            job = self._held.jobs.get(finish.lease.seq)
            if verdict is Verdict.LOST and job is not None:
                hooks.lease_lose.emit(LeaseLoss(worker_id, job, "finish"))
