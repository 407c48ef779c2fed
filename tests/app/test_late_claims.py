"""A claim whose reply is heard of late, because the loop was blocked meanwhile."""

from __future__ import annotations

import time

from tests.app.work import run_all

from holdfast import App, Context
from holdfast.store.values import Claim, ClaimRequest

LEASE = 0.6


async def test_a_job_is_not_begun_under_a_lease_that_was_over_before_the_reply_was_heard(file_app: App, monkeypatch):
    backend = await file_app.opened()
    claim = backend.jobs.claim
    claimed: list[int] = []
    begun: list[int] = []

    async def slow(request: ClaimRequest) -> Claim:
        reply = await claim(request)
        if reply.jobs and not claimed:
            time.sleep(2 * LEASE)  # noqa: ASYNC251 - what a handler does that should not
        claimed.extend(job.fence for job in reply.jobs)
        return reply

    monkeypatch.setattr(backend.jobs, "claim", slow)

    @file_app.task
    async def work(ctx: Context) -> None:
        begun.append(ctx.fence)

    await work.enqueue()
    await run_all(file_app, lease=LEASE)

    late, in_time = claimed
    assert late < in_time
    assert begun == [in_time]
