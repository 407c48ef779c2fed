"""`holdfast worker`: run and list."""

from __future__ import annotations

import logging
from typing import Any

import click

from holdfast.cli.document import is_silent, json_option, show_json, worker_fields
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import Cell, Column, show_table
from holdfast.cli.target import Target, store_options
from holdfast.cli.times import duration, span
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
_PURPOSE = "a worker runs the tasks of an app"


@click.group()
def worker() -> None:
    """Run workers and look at those that run."""


@worker.command()
@click.option("--queues", metavar="A,B", help="Only these queues.  [default: every queue]")
@click.option("--concurrency", type=click.IntRange(1), help="How many jobs at once, per process.  [default: 10]")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="How many processes.")
@click.option("--until-empty", is_flag=True, help="End when nothing is left to do.")
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
@click.option("--worker-id", help="A name; each run of the worker adds a suffix of its own.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
    help="What is logged to stderr.",
)
@store_options
def run(
    target: Target, *, queues: str | None, processes: int, until_empty: bool, log_level: str, **settings: Any
) -> None:
    """Run a worker until SIGTERM or SIGINT; a second signal gives its jobs back at once.

    With several processes, a supervisor starts them, restarts those that die and frees what they held; SIGHUP
    replaces them one by one.

    \b
    holdfast worker run --app shop.tasks:app --app-dir . --queues orders,mails --processes 4
    """  # noqa: D301
    # Before the app is imported, so that whatever it sets up for itself comes last and holds.
    configure_logs(logging.getLevelNamesMapping()[log_level.upper()])
    app = target.app_with_tasks(_PURPOSE)
    given = {name: value for name, value in settings.items() if value is not None}
    code = app.run_worker(processes=processes, queues=_names(queues), until_empty=until_empty, **given)
    click.get_current_context().exit(code)


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
        "all" if beat.queues is None else ", ".join(beat.queues),
    )
