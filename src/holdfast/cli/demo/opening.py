"""Open the store of a demo and the run in it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from holdfast.cli.demo.choice import records_of
from holdfast.cli.demo.cleaning import clean, enter
from holdfast.cli.demo.options import source
from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.records import Records
from holdfast.cli.exit_errors import ExitError, is_debugging
from holdfast.cli.logs import configure_logs
from holdfast.cli.target import require_file
from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")


@contextlib.asynccontextmanager
async def closing(app: App) -> AsyncGenerator[App]:
    """Close an app, whether or not it was opened."""
    try:
        yield app
    finally:
        await app.close()


def with_records(url: str, work: Callable[[Records], Awaitable[T]], *, creates: bool = True, fresh: bool = False) -> T:
    """Open the store of a demo, run `work`, and close the store.

    With `creates`, the store is created if needed, and a finished run (with `fresh`, any run) is removed first.
    """
    quieten()

    async def whole() -> T:
        from holdfast.app.app import App  # only here: importing it takes time

        async with closing(App(url)) as app:
            records = records_of(app)
            if not creates:
                await _require_store(app)
                return await work(records)
            await enter(records)
            run = await records.run()
            if run is not None and (fresh or run.is_finished):
                await clean(records, lambda _: None)
                await enter(records)
            return await work(records)

    return asyncio.run(whole())


async def _require_store(app: App) -> None:
    """Raise `ExitError` if the store does not exist."""
    try:
        require_file(app)
        await app.backend.schema.check()
    except (StoreUnavailable, SchemaMismatch) as error:
        if isinstance(error, StoreUnavailable) and app.backend.file is None:
            raise  # the server cannot be reached
        message = (
            f"there is no demo at {app.backend.url}: start one with `holdfast demo produce`, or pass another --url"
        )
        raise ExitError(message, ExitCode.UNAVAILABLE) from error


def quieten() -> None:
    """Suppress the store's warnings, which would break the display."""
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)


async def required_run(records: Records) -> DemoRun:
    """Return the run in the store; raise `ExitError` if there is none."""
    run = await records.run()
    if run is None:
        raise ExitError("the store contains no run of a demo: start one with `holdfast demo produce`")
    return run


async def prepared_run(records: Records, plan: DemoPlan) -> DemoRun:
    """Return the unfinished run, or a new one."""
    run = await records.run()
    if run is None:
        return await records.begin(plan)
    context = click.get_current_context()
    given = [name for name in DemoPlan.__struct_fields__ if source(context, name) is ParameterSource.COMMANDLINE]
    if any(getattr(run.plan, name) != getattr(plan, name) for name in given):
        click.echo("The unfinished run continues with its own plan; --fresh starts a new one.")
    return run


def stopped(where: str = "") -> ExitError:
    """Return the exit error of an interrupted demo."""
    remedy = "repeat the command to continue"
    if click.get_current_context().params["fresh"]:
        remedy = "repeat the command without --fresh to continue"
    return ExitError(f"interrupted{where}; {remedy}", ExitCode.INTERRUPTED)
