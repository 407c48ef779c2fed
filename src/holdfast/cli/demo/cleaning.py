"""Remove what a demo has left in a store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from holdfast.app.app import App
from holdfast.cli.demo.records import Records
from holdfast.cli.failures import Failure

_FILE = "sqlite:///"
_JOURNALS = ("", "-wal", "-shm")
_LONGEST_WAIT = timedelta(seconds=30)
_NONE = timedelta(0)


async def clean(url: str) -> str:
    """Remove the database file if it holds nothing but demos, else the demo's own tables; return what was done."""
    async with App(url) as app:
        records = Records(app)
        await records.require_sqlite()
        run = await records.run()
        await _until_nobody_holds(app, run.queue if run else "")
        if not await records.is_alone():
            await records.clean(run)
            return "The demo's tables are gone; its jobs that have ended are left to retention."
        file = app.backend.url.removeprefix(_FILE)
    await asyncio.to_thread(_remove, file)
    return f"{file} is gone."


def _remove(file: str) -> None:
    for ending in _JOURNALS:
        Path(file + ending).unlink(missing_ok=True)


async def _until_nobody_holds(app: App, queue: str) -> None:
    """Wait for the leases of consumers that were killed; refuse if somebody goes on claiming."""
    waited = _NONE
    while True:
        leases = [lease for lease in await app.leases(1000) if lease.queue == queue and lease.expires_in > _NONE]
        if not leases:
            return
        if waited >= _LONGEST_WAIT:
            raise Failure(f"{len(leases)} works of the demo are still held: stop its consumers, or try again later")
        pause = min(max(lease.expires_in for lease in leases), _LONGEST_WAIT)
        await asyncio.sleep(pause.total_seconds())  # the end of a lease is told by the clock alone
        waited += pause
