"""`holdfast schema`: the tables of the store."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.exit_errors import ExitError, Noun
from holdfast.cli.target import StoreTarget, require_file, store_options
from holdfast.errors import SchemaMismatch
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App


@click.group(cls=Noun)
def schema() -> None:
    """Install, upgrade and check the tables."""


async def _install(app: App, *, only_existing: bool = False) -> int:
    with contextlib.suppress(SchemaMismatch):  # the connection is open anyway; `install` rejects newer tables
        await app.opened(install=not only_existing)
    return await app.backend.schema.install(only_existing=only_existing)


@schema.command()
@store_options
def install(target: StoreTarget) -> None:
    """Create the tables, or upgrade older ones to this version; safe to repeat."""
    app = target.app()
    version = target.run(_install, app=app, creates=True)
    click.echo(f"The tables at {app.backend.url} have version {version}.")


@schema.command()
@store_options
def upgrade(target: StoreTarget) -> None:
    """Upgrade the tables of an existing store to this version; safe to repeat."""
    app = target.app()
    require_file(app)
    version = target.run(partial(_install, only_existing=True), app=app, creates=True)
    click.echo(f"The tables at {app.backend.url} have version {version}.")


@schema.command()
@store_options
def check(target: StoreTarget) -> None:
    """Check that the tables match this version; exit code 1 if not."""
    app = target.app()

    async def compare(app: App) -> None:
        await (await app.opened()).schema.check()

    try:
        target.run(compare, app=app)
    except SchemaMismatch as error:
        raise ExitError(str(error), ExitCode.WRONG) from error
    click.echo(f"The tables at {app.backend.url} match this version.")


@schema.command()
@store_options
def show(target: StoreTarget) -> None:
    """Print the statements that `install` runs on an empty store, without connecting."""
    click.echo(target.app().backend.schema.script().rstrip("\n"))
