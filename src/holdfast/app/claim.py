"""Claims of callers who drive themselves: what a claim has taken and nobody will hear of is given back.

```text
   claim ─▶ answered ─────────────────────────────────────▶ the caller holds the jobs
     │         └─ the caller was cancelled meanwhile ─────▶ released
     └─ the answer was lost ─▶ asked for by worker id ────▶ released
```

Left to expire, these jobs would be lost by a worker that lives, and each would run isolated next. A lost answer can be
asked for only under an id that is this claim's alone: under another's the leases may be of a claim that was heard.
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
    """Return the id under which a caller claims: the given one as it is, or one of this very claim."""
    return incarnation(_UNNAMED) if worker_id is None else check_name("worker", worker_id)


def callers_lease(lease: float | timedelta) -> timedelta:
    """Return the length of a lease; refuse one that would be over at its birth."""
    span = to_span(lease, "lease")
    if not span:
        message = (
            f"lease={lease!r} would be over before a job could be begun: pass seconds, more than 0, for example 30"
        )
        raise ConfigError(message)
    return span


async def claim_or_give_back(store: JobStore, request: ClaimRequest, *, has_own_id: bool) -> list[LeasedJob]:
    """Claim; a caller that is cancelled waits for the end of the claim, and what it took is given back.

    `has_own_id`: no other claim uses the worker id of this one. Raises `OutcomeUnknown` if the answer was lost.
    """
    call = asyncio.ensure_future(_claim(store, request, has_own_id=has_own_id))
    try:
        await asyncio.wait({call})
    except asyncio.CancelledError:
        await uncancellable(_take_back(store, call))
        raise
    return call.result()


async def _claim(store: JobStore, request: ClaimRequest, *, has_own_id: bool) -> list[LeasedJob]:
    try:
        return list((await store.claim(request)).jobs)
    except OutcomeUnknown:
        if has_own_id:
            await _give_back_unheard(store, request.worker_id)
        raise


async def _give_back_unheard(store: JobStore, worker_id: str) -> None:
    """Give back what a claim has taken whose answer was lost, as far as the store has committed it by now."""
    try:
        leases = await store.unheard(worker_id, 0)
    except StoreError as error:
        _logger.warning("whatever a claim has taken whose answer was lost is not given back: it expires (%s)", error)
    else:
        await _give_back(store, leases)


async def _take_back(store: JobStore, call: asyncio.Future[list[LeasedJob]]) -> None:
    """Wait for the end of a claim of which nobody will hear."""
    await asyncio.wait({call})
    if not call.cancelled() and call.exception() is None:
        await _give_back(store, [job.lease for job in call.result()])


async def _give_back(store: JobStore, leases: Sequence[Lease]) -> None:
    if not leases:
        return
    try:
        await store.release(leases, started=False)
    except StoreError as error:
        _logger.warning("%d jobs of an unheard claim are not given back: their leases expire (%s)", len(leases), error)
    else:
        _logger.info("gave back %d jobs: nobody has heard of the claim that took them", len(leases))
