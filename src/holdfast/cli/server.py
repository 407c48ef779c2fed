"""`holdfast server`: run the HTTP server, and manage the tokens of its callers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.exit_errors import ExitError, Noun
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.logs import configure_logs, log_level_option
from holdfast.cli.table import Column, show_table
from holdfast.cli.target import StoreTarget, app_argument, store_options
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.tokens import TokenView

_PORT = 8484
_COLUMNS = (
    Column("token", shrinks=True),
    Column("scopes", shrinks=True),
    Column("created", right=True),
    Column("expires", right=True),
)


@click.group(cls=Noun)
def server() -> None:
    """Run the HTTP server: API and dashboard."""


@server.command()
@app_argument
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address; any but a loopback address needs a token."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="The port; 0: any free one."
)
@click.option("--prefix", default="", metavar="/PATH", help="A path in front of all others, behind a proxy.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--require-token", is_flag=True, help="Require a token on this machine, too: a proxy runs here.")
@log_level_option
@store_options
def run(
    target: StoreTarget,
    *,
    host: str,
    port: int,
    prefix: str,
    read_only: bool,
    require_token: bool,
    log_level: str,
) -> None:
    """Serve the API and the dashboard until SIGTERM or SIGINT.

    With an app, arguments are checked against its tasks. Callers on this machine may do everything; others need a
    token (`holdfast server token create`), and without any the server does not start on another address.

    \b
    holdfast server run
    holdfast server run shop.tasks:app --host 0.0.0.0 --port 8484
    """  # noqa: D301 - \b keeps click from joining lines
    configure_logs(logging.getLevelNamesMapping()[log_level.upper()])
    app = target.app()
    try:
        from holdfast.server.serve import serve
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("holdfast"):
            raise
        raise ConfigError(f"{missing.name} is not installed: pip install 'holdfast[server]'") from missing
    serve(
        app,
        host=host,
        port=port,
        prefix=prefix,
        read_only=read_only,
        requires_token=require_token,
        announce=lambda url: click.echo(f"Serving {app.backend.url} on {url}", err=True),
    )


@server.group(cls=Noun)
def token() -> None:
    """Create, list and revoke the tokens of callers."""


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="enqueue, work:QUEUE, work:*, read, operate or admin; may be repeated.",
)
@click.option("--days", type=click.FloatRange(0, min_open=True), help="After how many days it expires.")
@store_options
def create(target: StoreTarget, *, name: str, scopes: Sequence[str], days: float | None) -> None:
    """Create a token and print its text, which is not stored and cannot be shown again.

    \b
    holdfast server token create grafana --scope read --days 90
    holdfast server token create resizer --scope work:images --scope enqueue
    """  # noqa: D301

    async def make(app: App) -> str:
        return await app.tokens.create(name, scopes, lasts=None if days is None else timedelta(days=days))

    click.echo(target.run(make, creates=True))


@token.command("list")
@json_option
@store_options
def list_tokens(target: StoreTarget, *, as_json: bool) -> None:
    """List the tokens with their scopes, never their texts."""

    async def look(app: App) -> Sequence[TokenView]:
        return await app.tokens.list()

    found = target.run(look)
    if as_json:
        tokens = [
            {
                "name": view.name,
                "scopes": [str(scope) for scope in view.scopes],
                "created_at": view.created_at,
                "expires_at": view.expires_at,
            }
            for view in found
        ]
        show_json({"tokens": tokens})
    elif not found:
        click.echo("No tokens.", err=True)
    else:
        show_table(
            _COLUMNS,
            [(view.name, ", ".join(map(str, view.scopes)), view.created_at, view.expires_at) for view in found],
        )


@token.command()
@click.argument("name")
@store_options
def revoke(target: StoreTarget, *, name: str) -> None:
    """Revoke a token: callers with it are refused from now on."""

    async def remove(app: App) -> bool:
        return await app.tokens.revoke(name)

    if not target.run(remove):
        raise ExitError(f"there is no token {name!r}: `holdfast server token list` shows them")
