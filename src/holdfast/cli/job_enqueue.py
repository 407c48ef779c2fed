"""`holdfast job enqueue`: a call to a task, checked as the same call in Python would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.app.app import App
from holdfast.app.job_handle import JobHandle
from holdfast.app.tasks import TaskHandle
from holdfast.cli.target import Target, store_options
from holdfast.cli.times import duration, instant
from holdfast.jobs.task import Task

_PURPOSE = "the arguments are checked against the task, so its app is needed"
_named = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wire = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]])


@click.command()
@click.argument("task")
@click.option("--arg", "arguments", metavar="NAME=JSON", multiple=True, help="An argument; may be given repeatedly.")
@click.option("--args", "document", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--queue", help="Another queue than the task's own.")
@click.option("--delay", type=duration, metavar="DURATION", help="Not before this time has passed, as in 90 or 5m.")
@click.option("--run-at", type=instant, metavar="ISO8601", help="Not before this time, given with its zone.")
@click.option("--priority", type=int, help="A head start of a minute for each step.")
@click.option("--max-attempts", type=int, help="How many attempts may fail.")
@click.option("--timeout", type=duration, metavar="DURATION", help="How long one attempt may take.")
@click.option("--order-key", metavar="TEXT", help="After all jobs of its queue with this key, one at a time.")
@click.option("--header", "headers", metavar="NAME=TEXT", multiple=True, help="A header; may be given repeatedly.")
@click.option("--id", "job_id", help="The id, a UUID: an enqueue repeated with it makes no second job.")
@store_options
def enqueue(
    target: Target,
    *,
    task: str,
    arguments: tuple[str, ...],
    document: str | None,
    headers: tuple[str, ...],
    **options: Any,
) -> None:
    """Make a job of a call to TASK and print its id.

    \b
    holdfast job enqueue charge --app shop.tasks:app --arg order_id=7 --arg 'note="by hand"'
    holdfast job enqueue charge --app shop.tasks:app --args '{"order_id": 7}' --delay 5m
    """  # noqa: D301
    if options["delay"] is not None and options["run_at"] is not None:
        raise click.UsageError(
            "--delay and --run-at both say when: --delay counts from now, --run-at is a time; give one"
        )
    app = target.app_with_tasks(_PURPOSE)
    definition = app.tasks.get(task)
    args, kwargs = _decode(definition, document, arguments)
    chosen = TaskHandle(app, definition, definition.handler).options(
        headers=dict(_pair(text, "--header", "NAME=TEXT") for text in headers), **options
    )

    async def put(_: App) -> JobHandle:
        return await chosen.enqueue(*args, **kwargs)

    handle = target.run(put, app=app, creates=True)
    click.echo(handle.id)
    if not handle.created:
        click.echo("A job of this id was there already: nothing was enqueued.", err=True)


def _decode(task: Task, document: str | None, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as the types that the task names, read from JSON as a worker would read them."""
    positional: list[msgspec.Raw] = []
    named: dict[str, msgspec.Raw] = {}
    if document is not None:
        positional, named = _read_document(document)
    for text in arguments:
        name, value = _pair(text, "--arg", "NAME=JSON")
        if name in named:
            raise click.UsageError(f"the argument {name} is given twice")
        named[name] = _read_value(name, value)
    return task.signature.decode(msgspec.json.encode((positional, named)).decode())


def _read_document(document: str) -> tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]:
    try:
        # The form in which `job show --show-args` prints a call: what has no name stands in the list before.
        return _wire.decode(document) if document.lstrip().startswith("[") else ([], _named.decode(document))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        message = f"--args is not an object of arguments ({error}): write it like '{{\"order_id\": 7}}'"
        raise click.UsageError(message) from None


def _read_value(name: str, value: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        message = f"--arg {name}: {value!r} is not JSON; a text needs quotes within quotes: --arg '{name}=\"…\"'"
        raise click.UsageError(message) from None
    return msgspec.Raw(value.encode())


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text!r} is not of the form {form}")
    return name, value
