"""`holdfast worker`: run and list."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import click

from holdfast.app.app import App
from holdfast.cli.exit_errors import Noun, warn
from holdfast.cli.json_output import is_silent, json_option, show_json, worker_fields
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import Cell, Column, console, show_table
from holdfast.cli.target import Target, store_options
from holdfast.cli.times import duration, span
from holdfast.errors import ConfigError
from holdfast.model.allocation import Timing
from holdfast.store.values import WorkerView

_COLUMNS = (
    Column("worker"),
    Column("state", coloured=True),
    Column("host"),
    Column("pid", right=True),
    Column("running", right=True),
    Column("lease"),
    Column("since"),
    Column("queues"),
)
_PURPOSE = "a worker runs the tasks and consumers of an app"


@click.group(cls=Noun)
def worker() -> None:
    """Run workers and look at those that run."""


@worker.command()
@click.option("--queues", metavar="A,B", help="Only these queues.  [default: every queue]")
@click.option(
    "--concurrency", type=click.IntRange(1), metavar="N", help="How many jobs at once, per process.  [default: 10]"
)
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="How many processes."
)
@click.option("--until-empty", is_flag=True, help="End when no job is left to do. Runs tasks alone, never consumers.")
@click.option(
    "--lease", type=duration, metavar="DURATION", help="How long a silent worker's jobs stay its own.  [default: 30s]"
)
@click.option(
    "--poll-interval",
    type=duration,
    metavar="DURATION",
    help="The pause after a claim that found too little.  [default: 500ms]",
)
@click.option(
    "--drain-timeout",
    type=duration,
    metavar="DURATION",
    help="How long handlers may go on after SIGTERM.  [default: 30s]",
)
@click.option("--worker-id", metavar="NAME", help="A name; each run of the worker adds a suffix of its own.")
@click.option(
    "--node-id", metavar="NAME", help="For consumers: a fixed name, under which a restart gets its partitions back."
)
@click.option(
    "--recovery",
    type=duration,
    metavar="DURATION",
    help="For consumers: how soon others take over from a dead node, from 2s.  [default: 15s]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    metavar="LEVEL",
    default="info",
    show_default=True,
    help="debug, info, warning or error: what is logged to stderr.",
)
@store_options
def run(
    target: Target,
    *,
    queues: str | None,
    processes: int,
    until_empty: bool,
    recovery: float | None,
    log_level: str,
    **settings: Any,
) -> None:
    """Run a worker until SIGTERM or SIGINT; a second signal gives its jobs back at once.

    It runs the tasks of the app and takes part, as a node, in the work of its consumers.

    With several processes, a supervisor starts them, restarts those that die and frees what they held; SIGHUP
    replaces them one by one.

    \b
    holdfast worker run --app shop.tasks:app --app-dir .
    holdfast worker run --app shop.tasks:app --queues orders,mails --processes 4
    """  # noqa: D301
    # Before the app is imported, so that whatever it sets up for itself comes last and holds.
    configure_logs(logging.getLevelNamesMapping()[log_level.upper()])
    app = target.app_with_work(_PURPOSE)
    for_consumers = {"--node-id": settings["node_id"], "--recovery": recovery}
    _check_consumers(app, [option for option, value in for_consumers.items() if value is not None], until_empty)
    given = {name: value for name, value in settings.items() if value is not None}
    if recovery is not None:
        given["timing"] = Timing.for_recovery(recovery)
    code = app.run_worker(processes=processes, queues=_names(queues), until_empty=until_empty, **given)
    click.get_current_context().exit(code)


def _check_consumers(app: App, options: Sequence[str], until_empty: bool) -> None:
    """Refuse a worker that would run nothing, and warn of options without effect."""
    has_consumers = len(app.subscribed) > 0
    if until_empty and not len(app.tasks):
        message = (
            "--until-empty runs tasks alone, and the app has consumers alone\n"
            "Leave it out: consumers wait for further events until the worker is stopped."
        )
        raise ConfigError(message)
    if options and (until_empty or not has_consumers):
        why = "with --until-empty no consumers run" if has_consumers else "the app has no consumers"
        warn(f"{' and '.join(options)} {'has' if len(options) == 1 else 'have'} no effect: {why}")


def _names(queues: str | None) -> list[str] | None:
    if queues is None:
        return None
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--queues names no queue: leave it out to serve every queue")
    return names


@worker.command("list")
@json_option
@store_options
def list_workers(target: Target, *, as_json: bool) -> None:
    """List the workers that have reported; those that have fallen silent are marked."""
    views = target.run(lambda app: app.workers())
    if as_json:
        show_json({"workers": [worker_fields(view) for view in views]})
        return
    if not views:
        click.echo("No workers.", err=True)
        return
    show_table(_COLUMNS, [_row(view) for view in views])


def _row(view: WorkerView) -> tuple[Cell, ...]:
    beat = view.beat
    return (
        beat.worker_id,
        f"silent for {span(view.silent)}" if is_silent(view) else "live",
        beat.host,
        beat.pid,
        f"{beat.running}/{beat.concurrency}",
        beat.lease,
        view.started_at,
        _served(beat.queues),
    )


def _served(queues: Sequence[str] | None) -> str:
    if queues is not None:
        return ", ".join(queues)
    return "every queue" if console().is_terminal else "all"
