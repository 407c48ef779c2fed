"""Claims made by the app's caller: jobs of a claim whose result the caller does not receive are released.

```text
   claim ─▶ reply ────────────────────────────────────────▶ the caller has the jobs
     │         └─ the caller was cancelled meanwhile ─────▶ released
     └─ the reply was lost ─▶ looked up by worker id ─────▶ released
```

Expired leases would count as lost by a worker, and each job would run isolated next. The jobs of a lost reply can be
looked up only if no other claim uses the worker id: otherwise the leases may belong to a claim that succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, OutcomeUnknown, StoreError
from holdfast.model.duration import to_span
from holdfast.model.job import Lease, LeasedJob
from holdfast.model.names import check_name
from holdfast.store.jobs import JobStore
from holdfast.store.values import ClaimRequest
from holdfast.worker.identity import incarnation

_logger = logging.getLogger("holdfast.jobs")
_UNNAMED = "caller"


def callers_id(worker_id: str | None) -> str:
    """Return the worker id of a claim: the given one, or a new one."""
    return incarnation(_UNNAMED) if worker_id is None else check_name("worker", worker_id)


def callers_lease(lease: float | timedelta) -> timedelta:
    """Return a valid length of a lease or raise `ConfigError`."""
    span = to_span(lease, "lease")
    if not span:
        message = f"lease={lease!r} would expire before a job could begin: pass seconds, more than 0, for example 30"
        raise ConfigError(message)
    return span


async def claim_or_release(store: JobStore, request: ClaimRequest, *, has_own_id: bool) -> list[LeasedJob]:
    """Claim; a caller that is cancelled waits for the end of the claim, whose jobs are then released.

    `has_own_id`: no other claim uses the worker id of this one. Raises `OutcomeUnknown` if the reply was lost.
    """
    call = asyncio.ensure_future(_claim(store, request, has_own_id=has_own_id))
    try:
        await asyncio.wait({call})
    except asyncio.CancelledError:
        await uncancellable(_release_claimed(store, call))
        raise
    return call.result()


async def _claim(store: JobStore, request: ClaimRequest, *, has_own_id: bool) -> list[LeasedJob]:
    try:
        return list((await store.claim(request)).jobs)
    except OutcomeUnknown:
        if has_own_id:
            await _release_unknown(store, request.worker_id)
        raise


async def _release_unknown(store: JobStore, worker_id: str) -> None:
    """Release the jobs of a claim whose reply was lost, as far as the store has committed it by now."""
    try:
        leases = await store.unacknowledged_leases(worker_id, 0)
    except StoreError as error:
        _logger.warning("could not release jobs of a claim whose reply was lost; their leases will expire (%s)", error)
    else:
        await _release(store, leases)


async def _release_claimed(store: JobStore, call: asyncio.Future[list[LeasedJob]]) -> None:
    """Wait for the end of a cancelled claim and release its jobs."""
    await asyncio.wait({call})
    if not call.cancelled() and call.exception() is None:
        await _release(store, [job.lease for job in call.result()])


async def _release(store: JobStore, leases: Sequence[Lease]) -> None:
    if not leases:
        return
    try:
        await store.release(leases, started=False)
    except StoreError as error:
        _logger.warning(
            "could not release %d jobs of a cancelled claim; their leases will expire (%s)", len(leases), error
        )
    else:
        _logger.info("released %d jobs of a cancelled claim", len(leases))
