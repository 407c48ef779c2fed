"""Open the demo's separate store, reject one that contains other data, and remove a demo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.demo.records import QUEUE_PREFIX, Records
from holdfast.cli.exit_errors import ExitError
from holdfast.cli.target import file_of
from holdfast.errors import SchemaMismatch, StoreError, StoreUnavailable
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App

URL: Final = "sqlite:///holdfast-demo.db"
_JOURNALS = ("", "-wal", "-shm")
_LONGEST_WAIT = timedelta(seconds=30)
_NONE = timedelta(0)


async def enter(records: Records) -> None:
    """Open the demo's store, created if needed; raise, without a change to it, if it contains anything but demos."""
    app = records.app
    file = file_of(app)
    if file is None:
        await _install(records)
    elif not _is_vacant(file):
        await _require_demo(app)
    await app.opened()
    found = await records.foreign()
    if found is not None:
        raise _refusal(app, f"it contains {found}")


async def _require_demo(app: App) -> None:
    """Raise if a file was created for something else, before anything is written to it."""
    try:
        await app.backend.schema.check()
    except SchemaMismatch:
        raise _refusal(app, "it contains other data, or a demo of another version") from None
    queues = await app.queues.list()
    if not queues:
        raise _refusal(app, "it was created for something else")
    for queue in queues:
        if not queue.name.startswith(QUEUE_PREFIX):
            raise _refusal(app, f"it contains the queue {queue.name}")


async def _install(records: Records) -> None:
    try:
        await records.create_place()
        await records.app.backend.schema.install()
    except StoreUnavailable:
        raise
    except StoreError as error:
        message = (
            f"the demo cannot create its {records.place}: {error}\n"
            f"Allow the role to create it, or use a file: `holdfast demo --url {URL}`."
        )
        raise ExitError(message, ExitCode.CONFIGURATION) from error


def _refusal(app: App, reason: str) -> ExitError:
    message = (
        f"the demo would interfere with {app.backend.url}: {reason}\n"
        f"Use a separate store for the demo, as in `holdfast demo --url {URL}`."
    )
    return ExitError(message, ExitCode.CONFIGURATION)


def _is_vacant(file: Path) -> bool:
    return not file.exists() or file.stat().st_size == 0


async def clean(records: Records, consent: Callable[[str], None]) -> str:
    """Remove a store that contains nothing but demos, or else only the demo's tables; return what was done."""
    app = records.app
    try:
        await app.backend.schema.check()
    except SchemaMismatch:
        return f"There is no demo to remove at {app.backend.url}."
    run = await records.run()
    found = await records.foreign()
    file = file_of(app)
    place = records.place if file is None else str(file)
    rest = f"Remove the demo's tables from {place}? Other data in it is kept."
    consent(f"Remove {place}?" if found is None else rest)
    await _until_unleased(app, run.queue if run else "")
    if found is not None:
        await records.drop_tables(run)
        return f"The demo's tables were removed from {place}; its finished jobs are left to retention."
    if file is None:
        await records.drop_schema()
    await app.close()  # its caches refer to tables that no longer exist
    if file is not None:
        await asyncio.to_thread(_remove, file)
    return f"{place} was removed."


def _remove(file: Path) -> None:
    for ending in _JOURNALS:
        file.with_name(file.name + ending).unlink(missing_ok=True)


async def _until_unleased(app: App, queue: str) -> None:
    """Wait until the leases of killed workers have expired; raise if jobs are still being claimed."""
    waited = _NONE
    while True:
        leases = [lease for lease in await app.leases(1000) if lease.queue == queue and lease.expires_in > _NONE]
        if not leases:
            return
        if waited >= _LONGEST_WAIT:
            raise ExitError(f"{len(leases)} jobs of the demo are still leased: stop its workers, or try again later")
        pause = min(max(lease.expires_in for lease in leases), _LONGEST_WAIT)
        await asyncio.sleep(pause.total_seconds())  # no event marks the expiry of a lease
        waited += pause
