"""`holdfast job`: enqueue, list, show, explain, retry, cancel and delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console, RenderableType

from holdfast.cli.exit_errors import warn
from holdfast.cli.ids import whole_id
from holdfast.cli.job_bulk import cancel, delete
from holdfast.cli.job_counts import counts
from holdfast.cli.job_enqueue import enqueue
from holdfast.cli.job_explain import explain
from holdfast.cli.job_graph import graph
from holdfast.cli.job_retry import retry
from holdfast.cli.job_view import render_jobs, show_details, show_jobs
from holdfast.cli.json_output import details_fields, fields_of, json_option, show_json
from holdfast.cli.live import check_watch, show_live, watch_option
from holdfast.cli.suggested_commands import command
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.job import JobState
from holdfast.runtime.unknown_queue import unknown_queue
from holdfast.store.values import JobDetails, JobPage, JobView

if TYPE_CHECKING:
    from holdfast.app.app import App

# The most urgent first.
_ORDER = (
    JobState.RUNNING,
    JobState.FAILED,
    JobState.READY,
    JobState.SCHEDULED,
    JobState.BLOCKED,
    JobState.CANCELLED,
    JobState.COMPLETED,
)
_FEW = 5
_PAGE = 50
_MOST = 1000


@click.group()
def job() -> None:
    """Enqueue, inspect, retry, cancel and delete jobs."""


job.add_command(enqueue)
job.add_command(retry)
job.add_command(cancel)
job.add_command(delete)
job.add_command(counts)
job.add_command(explain)
job.add_command(graph)


@job.command("list")
@click.option("--state", type=click.Choice([str(state) for state in JobState]), help="Only this state, page by page.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST),
    help=f"At most this many jobs.  [default: {_PAGE} with --state, else {_FEW} of each state]",
)
@click.option("--cursor", help="Continue after the previous page; needs --state.")
@watch_option
@json_option
@store_options
def list_jobs(
    target: StoreTarget,
    *,
    state: str | None,
    queue: str | None,
    task: str | None,
    limit: int | None,
    cursor: str | None,
    watch: float | None,
    as_json: bool,
) -> None:
    """List jobs: the first few of every state, or those of one state page by page.

    Waiting jobs are listed in the order in which they will run, others newest first.

    \b
    holdfast job list
    holdfast job list --state failed --task charge
    holdfast job list --watch
    """  # noqa: D301 - \b keeps click from joining lines
    if cursor is not None and state is None:
        raise click.UsageError("--cursor continues the list of one state: add its --state")
    check_watch(watch, as_json=as_json)

    async def look(app: App) -> list[JobPage]:
        states = _ORDER if state is None else (JobState(state),)
        size = limit or (_FEW if state is None else _PAGE)
        return [await app.jobs.list(one, queue=queue, task=task, cursor=cursor, limit=size) for one in states]

    async def frame(app: App, out: Console) -> RenderableType:
        return render_jobs([found for page in await look(app) for found in page.jobs], out.width)

    if watch is not None:
        show_live(target, frame, watch)
        return

    pages = target.run(partial(_look_and_warn, look, queue))
    jobs: list[JobView] = [found for page in pages for found in page.jobs]
    more = [str(page.jobs[-1].state) for page in pages if page.cursor]
    following = pages[0].cursor if state is not None else None
    if as_json:
        show_json({"jobs": [fields_of(found) for found in jobs], "cursor": following, "more": more})
        return
    show_jobs(jobs)
    if following is not None:
        size = None if limit is None else str(limit)
        _show_commands([str(state)], queue=queue, task=task, limit=size, cursor=following)
    elif more:
        _show_commands(more, queue=queue, task=task)


async def _look_and_warn(look: Callable[[App], Awaitable[list[JobPage]]], queue: str | None, app: App) -> list[JobPage]:
    """Return the pages; if they are empty, warn of a queue that is unknown."""
    pages = await look(app)
    if queue is not None and not any(page.jobs for page in pages):
        known = {view.name for view in await app.queues.list()}.union(task.queue for task in app.tasks)
        if queue not in known:
            warn(unknown_queue(queue, known))
    return pages


def _show_commands(states: Sequence[str], **options: str | None) -> None:
    """Print a command for each state that has more jobs, ready to be pasted."""
    words = [word for name, given in options.items() if given is not None for word in (f"--{name}", given)]
    commands = [command("job", "list", "--state", state, *words) for state in states]
    if len(commands) == 1:
        click.echo(f"There may be more: {commands[0]}", err=True)
    else:
        click.echo("\n  ".join(["There may be more:", *commands]), err=True)


@job.command()
@click.argument("job_id", metavar="ID")
@click.option("--show-args", is_flag=True, help="Also arguments, headers and result, which may contain secrets.")
@json_option
@store_options
def show(target: StoreTarget, *, job_id: str, show_args: bool, as_json: bool) -> None:
    """Show everything about a job; ID may be the beginning of an id.

    \b
    holdfast job show 01a1de74-f8d6
    """  # noqa: D301

    async def look(app: App) -> JobDetails:
        return await app.jobs.show(await whole_id(app, job_id))

    details = target.run(look)
    if as_json:
        show_json(details_fields(details, show_args=show_args))
    else:
        show_details(details, show_args=show_args)
