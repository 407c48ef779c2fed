"""The lease of one job, by its fence: the status of an answer says whether it was lost, for scripts with curl."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import LeaseLost
from holdfast.server.api.fields import NoFields
from holdfast.server.api.lease_schemas import (
    ExtendedItem,
    ExtendOneBody,
    ExtendVerdict,
    FinishedItem,
    FinishOneBody,
    LeaseRef,
    LeaseVerdict,
)
from holdfast.server.api.leases import extended, finished
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation
from holdfast.server.api.remote_outcomes import check_item
from holdfast.store.values import Verdict


async def extend_job(call: ApiCall[NoFields, ExtendOneBody]) -> Answer:
    """Extend the lease of a job, and record its progress.

    Answers 409 `lease-lost` if the lease under this fence was lost; the verdict `cancel` asks to stop, too.
    """
    item = ExtendedItem(lease=await _lease(call, call.body.fence), progress=call.body.progress)
    (verdict,) = await extended(call, [item], call.body.lease_seconds)
    if verdict.verdict == "lost":
        raise _lost(call)
    return Answer(verdict)


async def finish_job(call: ApiCall[NoFields, FinishOneBody]) -> Answer:
    """End the attempt of a job. A repeat with the same outcome is answered as the first time.

    Answers 409 `lease-lost` if the lease under this fence was lost.
    """
    check_item(call.body)
    fields = msgspec.structs.asdict(call.body)
    lease = await _lease(call, fields.pop("fence"))
    (verdict,) = await finished(call, [FinishedItem(lease=lease, **fields)])
    if verdict is Verdict.LOST:
        raise _lost(call)
    return Answer(LeaseVerdict(lease.job_id, "done"))


async def _lease(call: ApiCall[Any, Any], fence: str) -> LeaseRef:
    """Return the lease of the job under this fence; raises `JobNotFound`."""
    job = (await call.app.jobs.show(call.path("job_id"))).job
    return LeaseRef(job_id=job.id, seq=job.seq, fence=fence)


def _lost(call: ApiCall[Any, Any]) -> LeaseLost:
    return LeaseLost(
        f"job {call.path('job_id')} is no longer leased under fence {call.body.fence}; nothing was written"
    )


_JOB: Final = "/v1/jobs/{job_id}"
OPERATIONS: Final = (
    Operation(
        "POST",
        f"{_JOB}/extend",
        extend_job,
        Need.WORK,
        {200: ExtendVerdict},
        body=ExtendOneBody,
        problems=(409,),
    ),
    Operation(
        "POST",
        f"{_JOB}/finish",
        finish_job,
        Need.WORK,
        {200: LeaseVerdict},
        body=FinishOneBody,
        problems=(409,),
    ),
)
