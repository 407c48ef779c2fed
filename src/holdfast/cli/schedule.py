"""`holdfast schedule`: list, show, pause, resume, run, add and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.exit_errors import ExitError, Noun
from holdfast.cli.job_enqueue import decode_arguments, pair
from holdfast.cli.json_output import json_option, seconds, show_json
from holdfast.cli.pausing import pause_each, resume_each
from holdfast.cli.table import Cell, Column, dated, show_fields, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration
from holdfast.model.instants import to_micros
from holdfast.model.schedule import Missed, tick_id
from holdfast.reports.states import schedule_state
from holdfast.store.schedules import ScheduleView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("schedule", shrinks=True),
    Column("times", shrinks=True),
    Column("state", coloured=True),
    Column("last", right=True),
    Column("next", right=True),
    Column("task", optional=True),
    Column("queue", optional=True),
    Column("time zone", optional=True),
)
_PURPOSE = "the arguments are validated against the task, which needs its app"


@click.group(cls=Noun)
def schedule() -> None:
    """List, pause, resume, run and define schedules."""


@schedule.command("list")
@json_option
@store_options
def list_schedules(target: StoreTarget, *, as_json: bool) -> None:
    """List all schedules with their last and next times.

    The state is active, paused, overdue (no worker fires it) or undeclared (no worker's code declares it any longer).
    """

    async def look(app: App) -> list[ScheduleView]:
        return list(await app.schedules.list())

    found = target.run(look)
    if as_json:
        show_json({"schedules": [_fields(view) for view in found]})
    elif not found:
        click.echo("No schedules. Declare one with @app.schedule, or add one with `holdfast schedule add`.", err=True)
    else:
        show_table(_COLUMNS, [_row(view) for view in found])


def _row(view: ScheduleView) -> tuple[Cell, ...]:
    times, definition = view.definition.times, view.definition
    zone = times.timezone if times.cron is not None else None
    return (
        view.name,
        times.text(),
        schedule_state(view),
        view.last_at,
        view.next_at,
        definition.task,
        definition.queue,
        zone,
    )


def _fields(view: ScheduleView) -> dict[str, Any]:
    definition = view.definition
    times = definition.times
    return {
        "name": view.name,
        "state": schedule_state(view),
        "cron": times.cron,
        "every_seconds": seconds(times.every),
        "timezone": times.timezone,
        "missed": times.missed,
        "window_seconds": seconds(times.window),
        "jitter_seconds": seconds(times.jitter),
        "task": definition.task,
        "queue": definition.queue,
        "owner": view.owner,
        "last_at": view.last_at,
        "last_job_id": None if view.last_at is None else tick_id(view.name, to_micros(view.last_at)),
        "next_at": view.next_at,
        "overdue_seconds": seconds(view.overdue),
        "problem": view.problem,
    }


@schedule.command()
@click.argument("name")
@json_option
@store_options
def show(target: StoreTarget, *, name: str, as_json: bool) -> None:
    """Show a schedule: its times, its job, and the job of its last time."""

    async def look(app: App) -> ScheduleView:
        return await app.schedules.show(name)

    view = target.run(look)
    if as_json:
        show_json(_fields(view))
        return
    fields = _fields(view)
    times = view.definition.times
    shown: list[tuple[Column | str, Cell]] = [
        ("name", view.name),
        (Column("state", coloured=True), fields["state"]),
        ("cron", times.cron),
        ("every", times.every),
        *((name, fields[name]) for name in ("timezone", "missed")),
        ("window", times.window),
        ("jitter", times.jitter or None),
        *((name, fields[name]) for name in ("task", "queue", "owner")),
        ("last_at", dated(view.last_at)),
        ("last_job_id", fields["last_job_id"]),
        ("next_at", dated(view.next_at)),
        ("overdue", view.overdue or None),
        ("problem", view.problem),
    ]
    show_fields([(name, value) for name, value in shown if value is not None])


@schedule.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@store_options
def pause(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Stop firing schedules. Times that pass meanwhile never fire; jobs that were fired still run."""
    target.run(lambda app: pause_each(names, app.schedules.pause))


@schedule.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@store_options
def resume(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Fire schedules again, from their next times on."""
    target.run(lambda app: resume_each(names, app.schedules.resume))


@schedule.command()
@click.argument("name")
@store_options
def run(target: StoreTarget, *, name: str) -> None:
    """Enqueue a job of the schedule now, in addition to its times, and print its id."""

    async def fire(app: App) -> str:
        return (await app.schedules.run(name)).id

    click.echo(target.run(fire))


@schedule.command()
@click.argument("name")
@click.argument("task")
@click.option("--cron", metavar="EXPRESSION", help='Five fields, as in "*/5 * * * *".')
@click.option("--every", type=duration, metavar="DURATION", help="A period instead: 90 or 5m.")
@click.option("--timezone", default="UTC", show_default=True, help="The time zone of the cron expression.")
@click.option(
    "--missed",
    type=click.Choice([each.value for each in Missed]),
    default=Missed.ONCE.value,
    show_default=True,
    help="How to handle times that passed while no worker ran.",
)
@click.option("--window", type=duration, metavar="DURATION", help="How old a missed time may be; by default 1d.")
@click.option("--jitter", type=duration, metavar="DURATION", help="Delay each job by up to this, all by the same time.")
@click.option("--arg", "arguments", metavar="NAME=JSON", multiple=True, help="An argument; may be repeated.")
@click.option("--args", "document", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--queue", help="A queue other than the task's own.")
@click.option("--priority", type=int, help="A head start of one minute per step.")
@click.option("--max-attempts", type=int, help="The maximum number of attempts.")
@click.option("--timeout", type=duration, metavar="DURATION", help="The time limit of one attempt.")
@click.option("--order-key", metavar="TEXT", help="Run after all earlier jobs of the queue with this key.")
@click.option("--limit-key", metavar="TEXT", help="Obey the task's limit per key, with the other jobs of this key.")
@click.option("--header", "headers", metavar="NAME=TEXT", multiple=True, help="A header; may be repeated.")
@store_options
def add(
    target: StoreTarget,
    *,
    name: str,
    task: str,
    cron: str | None,
    arguments: tuple[str, ...],
    document: str | None,
    headers: tuple[str, ...],
    **settings: Any,
) -> None:
    """Define a schedule of TASK at run time, or replace it.

    \b
    holdfast schedule add nightly tidy --app shop.tasks:app --cron "30 2 * * *" --timezone Europe/Vienna
    holdfast schedule add poll fetch --app shop.tasks:app --every 5m --arg 'source="a"'
    """  # noqa: D301
    app = target.app_with_tasks(_PURPOSE)
    args, kwargs = decode_arguments(app.tasks.get(task), document, arguments)
    given = {setting: value for setting, value in settings.items() if value is not None}
    if given.get("every") is not None and given["timezone"] == "UTC":
        del given["timezone"]
    if headers:
        given["headers"] = dict(pair(text, "--header", "NAME=TEXT") for text in headers)

    async def put(app: App) -> bool:
        return await app.schedules.add(name, task, cron, args=args, kwargs=kwargs, **given)

    is_new = target.run(put, app=app, creates=True)
    click.echo(f"{name} {'added' if is_new else 'replaced'}")


@schedule.command()
@click.argument("name")
@store_options
def remove(target: StoreTarget, *, name: str) -> None:
    """Delete a schedule that no worker's code declares. Jobs that were fired still run."""

    async def change(app: App) -> bool:
        return await app.schedules.remove(name)

    if not target.run(change):
        raise ExitError(f"there is no schedule {name!r}: `holdfast schedule list` shows all of them")
    click.echo(f"{name} removed")
