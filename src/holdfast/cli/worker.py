"""`holdfast worker`: run and list."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.cli.celery_remedies import CommandWithRemedies
from holdfast.cli.exit_errors import Noun, warn
from holdfast.cli.json_output import json_option, show_json, worker_fields
from holdfast.cli.logs import configure_logs, log_level_option
from holdfast.cli.table import Cell, Column, console, is_live_terminal, show_table
from holdfast.cli.target import StoreTarget, app_argument, store_options
from holdfast.cli.times import duration
from holdfast.errors import ConfigError
from holdfast.model.allocation import Timing
from holdfast.reports.states import worker_state
from holdfast.store.values import WorkerView

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.worker_settings import WorkerSettings

_COLUMNS = (
    Column("worker", shrinks=True, keeps_end=True),
    Column("state", coloured=True),
    Column("heartbeat", right=True),
    Column("running", right=True),
    Column("pid", right=True),
    Column("queues", shrinks=True),
    Column("since", optional=True),
    Column("host", shrinks=True, optional=True),
    Column("lease", optional=True),
)
_PURPOSE = "a worker runs the tasks and consumers of an app"


@click.group(cls=Noun)
def worker() -> None:
    """Run and list workers."""


@worker.command(cls=CommandWithRemedies)
@app_argument
@click.option("--queues", metavar="A,B", help="Only these queues.  [default: every queue]")
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Concurrent jobs per process.  [default: 10]")
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="The number of processes."
)
@click.option("--until-empty", is_flag=True, help="Exit when no job is left. Runs only tasks, no consumers.")
@click.option(
    "--lease", type=duration, metavar="DURATION", help="How long a silent worker keeps its jobs.  [default: 30s]"
)
@click.option(
    "--poll-interval",
    type=duration,
    metavar="DURATION",
    help="The pause after a claim that returned too few jobs.  [default: 500ms]",
)
@click.option(
    "--drain-timeout",
    type=duration,
    metavar="DURATION",
    help="How long handlers may continue after SIGTERM.  [default: 30s]",
)
@click.option("--worker-id", metavar="NAME", help="The worker's name; every run adds a unique suffix.")
@click.option(
    "--node-id", metavar="NAME", help="For consumers: a fixed name; a restart under it resumes its partitions."
)
@click.option(
    "--recovery",
    type=duration,
    metavar="DURATION",
    help="For consumers: how soon a dead node's partitions are taken over, at least 2s.  [default: 15s]",
)
@log_level_option
@click.option(
    "--metrics-port",
    metavar="[HOST:]PORT",
    help="Serve /metrics, /livez and /readyz there; on the loopback interface unless a host is given.",
)
@click.option("--quiet", "-q", is_flag=True, help="No live status line on a terminal.")
@store_options
def run(
    target: StoreTarget,
    *,
    queues: str | None,
    processes: int,
    until_empty: bool,
    recovery: float | None,
    log_level: str,
    metrics_port: str | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Run a worker until SIGTERM or SIGINT; a second signal releases its running jobs at once.

    The worker runs the tasks of the app. If the app has consumers, it is also a node that runs them.

    With several processes, a supervisor starts them, restarts those that die and releases their leases; SIGHUP
    replaces them one by one.

    \b
    holdfast worker run shop.tasks:app
    holdfast worker run shop.tasks:app --queues orders,mails --processes 4
    """  # noqa: D301
    from holdfast.app.run_worker import run_worker
    from holdfast.app.worker_settings import WORKER_SETTINGS

    # Before the app is imported, so that its own logging configuration takes precedence.
    configure_logs(logging.getLevelNamesMapping()[log_level.upper()])
    app = target.app_with_work(_PURPOSE)
    for_consumers = {"--node-id": settings["node_id"], "--recovery": recovery}
    _check_consumers(app, [option for option, value in for_consumers.items() if value is not None], until_empty)
    given = {name: value for name, value in settings.items() if value is not None}
    if recovery is not None:
        given["timing"] = Timing.for_recovery(recovery)
    if not quiet:
        given |= _display(app, processes, has_consumers=len(app.subscribed) > 0 and not until_empty)
    own = {name: given.pop(name) for name in WORKER_SETTINGS if name in given}
    wanted = cast("WorkerSettings", {"queues": _names(queues), "until_empty": until_empty, **own})
    with _endpoint(app, metrics_port, processes):
        code = run_worker(app, wanted, processes=processes, **given)
    click.get_current_context().exit(code)


def _endpoint(app: App, address: str | None, processes: int) -> AbstractContextManager[object]:
    if address is None:
        return nullcontext()
    from holdfast.telemetry import serve_metrics

    return serve_metrics(app, address, processes=processes)


def _display(app: App, processes: int, *, has_consumers: bool) -> dict[str, Any]:
    """Show the live status line: on stderr, or under the joined logs on stdout; only on a terminal."""
    if not is_live_terminal(sys.stderr if processes == 1 else sys.stdout):
        return {}
    from holdfast.cli.status_line import SharedFigures, StatusLine  # slow to import, and seldom needed

    if processes == 1:
        StatusLine(has_consumers=has_consumers).observe(app.hooks)
        return {}
    figures = SharedFigures(processes, has_consumers=has_consumers)
    app.on("worker.report", figures.write)
    return {"line": figures.line}


def _check_consumers(app: App, options: Sequence[str], until_empty: bool) -> None:
    """Raise `ConfigError` for a worker that would run nothing, and warn about options without effect."""
    has_consumers = len(app.subscribed) > 0
    if until_empty and not len(app.tasks):
        message = (
            "--until-empty runs only tasks, and this app has only consumers\n"
            "Leave it out: consumers wait for events until the worker is stopped."
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
        raise click.UsageError("--queues is empty: leave it out to serve every queue")
    return names


@worker.command("list")
@json_option
@store_options
def list_workers(target: StoreTarget, *, as_json: bool) -> None:
    """List the workers that have sent heartbeats; silent ones are marked.

    `running` is the number of jobs that a worker holds now, of as many as it runs at a time.
    """
    views = target.run(lambda app: app.workers())
    if as_json:
        show_json({"workers": [worker_fields(view) for view in views]})
        return
    if not views:
        click.echo("No workers.", err=True)
        return
    show_table(_COLUMNS, [_row(view) for view in views])


def _row(view: WorkerView) -> tuple[Cell, ...]:
    heartbeat = view.heartbeat
    return (
        heartbeat.worker_id,
        worker_state(view),
        view.silent,
        f"{view.running}/{heartbeat.concurrency}",
        heartbeat.pid,
        _served(heartbeat.queues),
        view.started_at,
        heartbeat.host,
        heartbeat.lease,
    )


def _served(queues: Sequence[str] | None) -> str:
    if queues is not None:
        return ", ".join(queues)
    return "every queue" if console().is_terminal else "all"
