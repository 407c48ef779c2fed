"""An extension that comes while the handler's own transaction holds the lease."""

from __future__ import annotations

import asyncio

import pytest
from tests.app.work import ended, working

from holdfast import App, Context

LEASE = 3.0


@pytest.mark.slow
async def test_a_lease_whose_extension_met_the_handlers_transaction_is_extended_soon_after_it(url: str):
    """Else the next extension were due when the lease is over, and a rescuer would take a healthy job."""
    left: list[float] = []
    app = App(url)

    @app.task
    async def works(ctx: Context) -> None:
        await asyncio.sleep(LEASE * 0.4)
        async with ctx.transaction(completes=False):
            await asyncio.sleep(LEASE * 0.2)  # an extension is due at half of the lease
        await asyncio.sleep(LEASE * 0.15)  # the keeper looks again after a twentieth of it
        (lease,) = await app.leases()
        left.append(lease.expires_in.total_seconds())

    job = await works.enqueue()
    async with working(app, lease=LEASE):
        await ended(job)
    await app.close()
    app.portal.close()

    assert left[0] > LEASE / 2
