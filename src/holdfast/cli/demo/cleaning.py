"""Keep to one's own: refuse a place that holds anything else, and remove what a demo has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.app.app import App
from holdfast.cli.demo.records import QUEUE_PREFIX, Records
from holdfast.cli.demo.target import DemoStatements
from holdfast.cli.exit_errors import ExitError
from holdfast.cli.target import file_of
from holdfast.errors import SchemaMismatch, StoreError, StoreUnavailable
from holdfast.runtime.exit_code import ExitCode

URL: Final = "sqlite:///holdfast-demo.db"
_JOURNALS = ("", "-wal", "-shm")
_LONGEST_WAIT = timedelta(seconds=30)
_NONE = timedelta(0)


async def enter(records: Records) -> None:
    """Open the demo's own store, made if need be; refuse one that holds anything but demos, and leave it as it is."""
    app, ground = records.app, records.ground
    file = file_of(app)
    if file is None:
        await _install(app, ground)
    elif not _is_vacant(file):
        await _require_demo(app)
    found = await records.foreign()
    if found is not None:
        raise _refusal(app, f"it holds {found}")


async def _require_demo(app: App) -> None:
    """Refuse a file that was made for something else, before anything is written to it."""
    try:
        await app.backend.schema.check()
    except SchemaMismatch:
        raise _refusal(app, "it holds something else, or a demo of another version") from None
    queues = await app.queues.list()
    if not queues:
        raise _refusal(app, "it was made for something else")
    for queue in queues:
        if not queue.name.startswith(QUEUE_PREFIX):
            raise _refusal(app, f"it holds the queue {queue.name}")


async def _install(app: App, ground: DemoStatements) -> None:
    try:
        await app.backend.schema.install()
    except StoreUnavailable:
        raise
    except StoreError as error:
        message = (
            f"the demo cannot make a schema of its own, {ground.schema}, at {app.backend.url}: {error}\n"
            f"Let the role create schemas there, or play on a file: `holdfast demo --url {URL}`."
        )
        raise ExitError(message, ExitCode.CONFIGURATION) from error


def _refusal(app: App, reason: str) -> ExitError:
    message = (
        f"the demo would disturb {app.backend.url}: {reason}\n"
        f"Give the demo a place of its own, as in `holdfast demo --url {URL}`."
    )
    return ExitError(message, ExitCode.CONFIGURATION)


def _is_vacant(file: Path) -> bool:
    return not file.exists() or file.stat().st_size == 0


async def clean(records: Records, consent: Callable[[str], None]) -> str:
    """Remove all of a place that holds nothing but demos, else the demo's own tables; return what was done."""
    app = records.app
    try:
        await app.backend.schema.check()
    except SchemaMismatch:
        return f"There is no demo to clean at {app.backend.url}."
    run = await records.run()
    found = await records.foreign()
    place = _place(app, records.ground)
    rest = f"Remove the demo's tables from {place}? What else it holds is left alone."
    consent(f"Remove {place}?" if found is None else rest)
    await _until_nobody_holds(app, run.queue if run else "")
    if found is not None:
        await records.drop_tables(run)
        return f"The demo's tables are gone from {place}; its jobs that have ended are left to retention."
    file = file_of(app)
    if file is None:
        await records.drop_schema()
    await app.close()  # what it remembers of the tables is no longer true
    if file is not None:
        await asyncio.to_thread(_remove, file)
    return f"{place} is gone."


def _place(app: App, ground: DemoStatements) -> str:
    """Return the demo's own store in words."""
    file = file_of(app)
    if file is not None:
        return str(file)
    return f"schema {ground.schema} at {app.backend.url.partition('?')[0]}"


def _remove(file: Path) -> None:
    for ending in _JOURNALS:
        file.with_name(file.name + ending).unlink(missing_ok=True)


async def _until_nobody_holds(app: App, queue: str) -> None:
    """Wait for the leases of consumers that were killed; refuse if somebody goes on claiming."""
    waited = _NONE
    while True:
        leases = [lease for lease in await app.leases(1000) if lease.queue == queue and lease.expires_in > _NONE]
        if not leases:
            return
        if waited >= _LONGEST_WAIT:
            raise ExitError(f"{len(leases)} works of the demo are still held: stop its consumers, or try again later")
        pause = min(max(lease.expires_in for lease in leases), _LONGEST_WAIT)
        await asyncio.sleep(pause.total_seconds())  # the end of a lease is told by the clock alone
        waited += pause
