"""Attempts of workers over HTTP, as far as this server sees them: it reports them to the hooks of the app.

```text
   claim ─▶ job.start ─▶ finish ─▶ job.end
                       ├─ finish, release or extend is refused ─▶ lease.lose, and job.end: aborted
                       └─ the lease expires ─▶ job.end: as another server has ended it, otherwise lost
```

So metrics, alerts and traces of the server cover these workers. What is kept of an attempt is bounded, and nothing is
kept without observers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.hooks.values import LeaseLoss
from holdfast.model.job import JobState, Lease, LeasedJob
from holdfast.model.outcome import Failure, Lost
from holdfast.store.values import Finish, Verdict
from holdfast.worker.attempt_reports import AttemptReports

if TYPE_CHECKING:
    from holdfast.app.app import App

_MOST: Final = 100_000  # attempts; more at once are not reported
_LATE: Final = 5.0  # seconds after the end of a lease: the rescue has seen it by then
_AT_ONCE: Final = 500
_EXPIRE_EVERY: Final = 1.0  # seconds: each time looks at all attempts
_SILENT: Final = Failure("WorkerLost", "the worker over HTTP stopped sending heartbeats")


class _RemoteAttempt(msgspec.Struct):
    """An attempt that has begun; the job is kept without its arguments."""

    job: LeasedJob
    worker_id: str
    reports: AttemptReports
    began: float
    until: float


class RemoteAttempts:
    """The attempts of the workers of one server."""

    def __init__(self, app: App, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._running: dict[tuple[int, int], _RemoteAttempt] = {}
        self._expire_at = -math.inf

    def started(self, jobs: Iterable[LeasedJob], worker_id: str, lease_seconds: float) -> None:
        """Report that attempts begin."""
        hooks, now = self._app.hooks, self._clock()
        observed = (hooks.job_start, hooks.job_end, hooks.job_retry, hooks.job_fail, hooks.lease_lose)
        if not any(hook.observers for hook in observed):
            return
        for job in jobs:
            if len(self._running) >= _MOST:
                return
            reports = AttemptReports(hooks, worker_id)
            reports.started(job)
            kept = msgspec.structs.replace(job, payload="")
            self._running[job.seq, job.fence] = _RemoteAttempt(kept, worker_id, reports, now, now + lease_seconds)

    def knows(self, lease: Lease) -> bool:
        """Whether this lease of this job was claimed from this server, and the end of its attempt was not yet seen."""
        attempt = self._running.get((lease.seq, lease.fence))
        return attempt is not None and attempt.job.id == lease.job_id

    def extended(self, lease: Lease, lease_seconds: float) -> None:
        """Note that a lease was extended."""
        attempt = self._running.get((lease.seq, lease.fence))
        if attempt is not None:
            attempt.until = self._clock() + lease_seconds

    def finished(self, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> None:
        """Report the ends of attempts, and the leases that were lost."""
        for finish, verdict in zip(finishes, verdicts, strict=True):
            if verdict is Verdict.LOST:
                self.lost(finish.lease, is_ended=True)
            elif (attempt := self._ended(finish.lease)) is not None:
                attempt.reports.ended(attempt.job, finish.outcome, attempt.began)

    def lost(self, lease: Lease, *, is_ended: bool = False) -> None:
        """Report that a lease was lost: found when its attempt was to end, or when it was to be extended."""
        attempt = self._ended(lease)
        if attempt is None:
            return
        attempt.reports.settled(attempt.job, attempt.began, is_aborted=True)
        if self._app.hooks.lease_lose.observers:
            loss = LeaseLoss(attempt.worker_id, attempt.job, "finish" if is_ended else "extend")
            self._app.hooks.lease_lose.emit(loss)

    def released(self, lease: Lease, verdict: Verdict) -> None:
        """Report that a worker released a job."""
        if verdict is Verdict.LOST:
            self.lost(lease, is_ended=True)
        elif (attempt := self._ended(lease)) is not None:
            attempt.reports.settled(attempt.job, attempt.began, is_aborted=True)

    async def expire(self) -> None:
        """Report the attempts whose leases have expired: another server may have ended them.

        Costs one read if there are any.
        """
        now = self._clock()
        if now < self._expire_at:
            return
        late = [attempt for attempt in self._running.values() if attempt.until < now - _LATE][:_AT_ONCE]
        if len(late) < _AT_ONCE:  # otherwise the next round continues
            self._expire_at = now + _EXPIRE_EVERY
        if not late:
            return
        found = await self._app.backend.insight.states(list({attempt.job.id for attempt in late}))
        states = {seen.id: seen.state for seen in found}
        for attempt in late:
            if self._ended(attempt.job.lease) is None:  # while the store was asked
                continue
            state = states.get(attempt.job.id)
            if state in {JobState.READY, JobState.RUNNING, JobState.BLOCKED}:
                attempt.reports.ended(attempt.job, Lost(_SILENT), attempt.began)
            else:
                attempt.reports.settled(attempt.job, attempt.began, is_aborted=state != JobState.COMPLETED)

    def _ended(self, lease: Lease) -> _RemoteAttempt | None:
        return self._running.pop((lease.seq, lease.fence), None)
