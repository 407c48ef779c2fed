"""A backend wrapper that records requests to the store and their replies.

Every worker's backend is wrapped, so the code under torture needs no code for its history.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, cast

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.backend import Backend, Transactions
from holdfast.store.jobs import Extender, JobStore
from holdfast.store.values import Claim, ClaimRequest, Extension, Finish, Rescued, Verdict
from holdfast.torture.events import (
    Claimed,
    ExtendAnswered,
    Extended,
    ProgressAnswered,
    Released,
    RescueSeen,
)
from holdfast.torture.history import now_us
from holdfast.torture.recorder import Recorder
from holdfast.torture.recording_transactions import (
    UNAVAILABLE,
    UNKNOWN,
    RecordingTransactions,
    joined_transaction,
    record_finishes,
)

WORKER: Final = "HOLDFAST_TORTURE_WORKER"
_KEPT_FENCES: Final = 1000


class RecordingBackend:
    """A `Backend` around another; calls that are not recorded pass through, including future verbs of the port."""

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self._workers: dict[int, str] = {}
        self.claims_directly = False
        """Whether the program claims directly, without a worker."""

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the inner backend."""
        return getattr(self._inner, name)

    @classmethod
    def around(cls, inner: Backend, recorder: Recorder) -> tuple[Backend, RecordingBackend]:
        """Return the same object twice: typed as a backend, and as the wrapper."""
        recording = cls(inner, recorder)
        return cast("Backend", recording), recording

    def worker_of(self, fence: int) -> str:
        """Return the worker that claimed under a fence: one of this process, or the parent of this job child."""
        return self._workers.get(fence, "") or os.environ.get(WORKER, "")

    @property
    def jobs(self) -> JobStore:  # noqa: D102
        return cast(
            "JobStore",
            RecordingJobs(self._inner.jobs, self._recorder, self._workers, claims_directly=self.claims_directly),
        )

    @property
    def transactions(self) -> Transactions:  # noqa: D102
        return cast("Transactions", RecordingTransactions(self._inner.transactions, self._recorder))

    def extender(self) -> Extender:  # noqa: D102
        return cast("Extender", RecordingExtender(self._inner.extender(), self._recorder))


class RecordingJobs:
    """Records the verbs that move jobs; the others pass through."""

    def __init__(self, inner: JobStore, recorder: Recorder, workers: dict[int, str], *, claims_directly: bool) -> None:
        self._inner = inner
        self._recorder = recorder
        self._workers = workers
        self._claims_directly = claims_directly

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def claim(self, request: ClaimRequest) -> Claim:
        sent_us = now_us()
        claim = await self._inner.claim(request)
        at_us, lease_us = now_us(), span_micros(request.lease)
        if claim.jobs:
            os.environ[WORKER] = request.worker_id  # for job children started from now on
        for job in claim.jobs:
            self._workers[job.fence] = request.worker_id
            record = Claimed(
                at_us=at_us,
                job=job.id,
                fence=job.fence,
                attempt=job.attempt,
                worker=request.worker_id,
                queue=job.queue,
                task=job.task,
                sent_us=sent_us,
                lease_us=lease_us,
                turn_us=job.turn,
                seq=job.seq,
                direct=self._claims_directly,
            )
            self._recorder.write(record)
        while len(self._workers) > _KEPT_FENCES:
            del self._workers[next(iter(self._workers))]
        return claim

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:
        sent_us = now_us()
        try:
            verdicts = await self._inner.finish(finishes, briefly=briefly)
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._finished(finishes, [_error_verdict(error)] * len(finishes), sent_us)
            raise
        joined = joined_transaction.get()
        if joined is None:
            self._finished(finishes, verdicts, sent_us)
        else:  # it takes effect when the transaction that it joined commits
            joined.later.append(
                lambda how: self._finished(finishes, verdicts if how is None else [how] * len(finishes), sent_us)
            )
        return verdicts

    def _finished(self, finishes: Sequence[Finish], verdicts: Sequence[str], sent_us: int) -> None:
        record_finishes(self._recorder, finishes, verdicts, sent_us)

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        sent_us = now_us()
        try:
            verdicts = await self._inner.release(leases, started=started)
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._released(leases, [_error_verdict(error)] * len(leases), sent_us, started=started)
            raise
        self._released(leases, verdicts, sent_us, started=started)
        return verdicts

    def _released(self, leases: Sequence[Lease], verdicts: Sequence[str], sent_us: int, *, started: bool) -> None:
        at_us = now_us()
        for lease, verdict in zip(leases, verdicts, strict=True):
            record = Released(
                at_us=at_us,
                job=lease.job_id,
                fence=lease.fence,
                started=started,
                verdict=str(verdict),
                sent_us=sent_us,
            )
            self._recorder.write(record)

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:
        sent_us = now_us()
        return self._rescued(await self._inner.rescue(unbroken, limit), sent_us)

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:
        sent_us = now_us()
        return self._rescued(await self._inner.rescue_worker(worker_id, reason, limit), sent_us)

    def _rescued(self, jobs: list[Rescued], sent_us: int) -> list[Rescued]:
        at_us = now_us()
        for job in jobs:
            record = RescueSeen(
                at_us=at_us,
                job=job.job_id,
                attempt=job.attempt,
                worker=job.worker_id,
                state=str(job.state),
                sent_us=sent_us,
            )
            self._recorder.write(record)
        return jobs

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:
        sent_us = now_us()

        def record(verdict: str) -> None:
            self._recorder.write(
                ProgressAnswered(at_us=now_us(), job=lease.job_id, fence=lease.fence, verdict=verdict, sent_us=sent_us)
            )

        return await _recorded_verdict(self._inner.progress(lease, percent, note), record)

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:
        sent_us = now_us()

        def record(verdict: str) -> None:
            self._recorder.write(
                ExtendAnswered(
                    at_us=now_us(),
                    job=lease.job_id,
                    fence=lease.fence,
                    verdict=verdict,
                    sent_us=sent_us,
                    lease_us=span_micros(duration),
                )
            )

        return await _recorded_verdict(self._inner.extend(lease, duration), record)


class RecordingExtender:
    """Records the verbs of the lease keeper's thread."""

    def __init__(self, inner: Extender, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        sent_us = now_us()
        try:
            extension = self._inner.extend(leases, duration)
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._extended([(lease, _error_verdict(error)) for lease in leases], duration, sent_us)
            raise
        others = {(lease.seq, lease.fence): "lost" for lease in extension.lost}
        others |= {(lease.seq, lease.fence): "skipped" for lease in extension.skipped}
        verdicts = [(lease, others.get((lease.seq, lease.fence), "done")) for lease in leases]
        self._extended(verdicts, duration, sent_us)
        return extension

    def _extended(self, verdicts: Sequence[tuple[Lease, str]], duration: timedelta, sent_us: int) -> None:
        at_us, lease_us = now_us(), span_micros(duration)
        for lease, verdict in verdicts:
            self._recorder.write(
                Extended(
                    at_us=at_us,
                    job=lease.job_id,
                    fence=lease.fence,
                    verdict=verdict,
                    sent_us=sent_us,
                    lease_us=lease_us,
                )
            )


async def _recorded_verdict(call: Awaitable[Verdict], record: Callable[[str], None]) -> Verdict:
    """Await a verdict and record it, or record that there is none."""
    try:
        verdict = await call
    except (StoreUnavailable, OutcomeUnknown) as error:
        record(_error_verdict(error))
        raise
    record(str(verdict))
    return verdict


def _error_verdict(error: StoreUnavailable | OutcomeUnknown) -> str:
    return UNAVAILABLE if isinstance(error, StoreUnavailable) else UNKNOWN


__all__ = ["RecordingBackend"]
