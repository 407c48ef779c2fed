"""`holdfast job enqueue`: enqueue a call of a task, validated like the same call in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from holdfast.cli.ids import whole_ids
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration, instant

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.job_handle import JobHandle
    from holdfast.jobs.task import Task

_PURPOSE = "the arguments are validated against the task, which needs its app"
_named = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wire = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]])


def _scope(text: str) -> str | float:
    """Return how long a job holds its unique key."""
    return text if text in ("waiting", "unfinished") else duration(text)


@click.command()
@click.argument("task")
@click.argument("positional", metavar="", nargs=-1)
@click.option("--arg", "arguments", metavar="NAME=JSON", multiple=True, help="An argument; may be repeated.")
@click.option("--args", "document", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--queue", help="A queue other than the task's own.")
@click.option("--delay", type=duration, metavar="DURATION", help="Do not start before this time has passed: 90 or 5m.")
@click.option("--run-at", type=instant, metavar="ISO8601", help="Do not start before this time; needs a time zone.")
@click.option("--priority", type=int, help="A head start of one minute per step.")
@click.option("--max-attempts", type=int, help="The maximum number of attempts.")
@click.option("--timeout", type=duration, metavar="DURATION", help="The time limit of one attempt.")
@click.option("--order-key", metavar="TEXT", help="Run after all earlier jobs of the queue with this key.")
@click.option("--limit-key", metavar="TEXT", help="Obey the task's limit per key, with the other jobs of this key.")
@click.option("--unique-key", metavar="TEXT", help="Enqueue nothing while another job of the task holds this key.")
@click.option("--unique", is_flag=True, default=None, help="The same, with the arguments as the key.")
@click.option(
    "--unique-for",
    type=_scope,
    metavar="waiting|unfinished|DURATION",
    help="How long the job holds its key; by default until it has ended.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["keep", "replace", "raise"]),
    help="If the key is held: print that job's id (keep), also replace its arguments, or fail.",
)
@click.option("--after", metavar="ID", multiple=True, help="Wait for the end of this job; may be repeated.")
@click.option("--run-anyway", is_flag=True, default=None, help="Run even if one of those fails or is cancelled.")
@click.option("--header", "headers", metavar="NAME=TEXT", multiple=True, help="A header; may be repeated.")
@click.option("--id", "job_id", help="The job's id, a UUID: repeating an enqueue with it creates no second job.")
@store_options
def enqueue(
    target: StoreTarget,
    *,
    task: str,
    positional: tuple[str, ...],
    arguments: tuple[str, ...],
    document: str | None,
    headers: tuple[str, ...],
    after: tuple[str, ...],
    run_anyway: bool | None,
    **options: Any,
) -> None:
    """Enqueue a call of TASK and print the id of the job.

    \b
    holdfast job enqueue charge --app shop.tasks:app --arg order_id=7 --arg 'note="by hand"'
    holdfast job enqueue charge --app shop.tasks:app --args '{"order_id": 7}' --delay 5m
    """  # noqa: D301
    if positional:
        raise click.UsageError(f"{positional[0]!r} has no name: pass arguments by name, as in --arg 'name=\"Ada\"'")
    if options["delay"] is not None and options["run_at"] is not None:
        raise click.UsageError(
            "--delay and --run-at exclude each other: --delay counts from now, --run-at is a time; give one"
        )
    if run_anyway and not after:
        raise click.UsageError("--run-anyway has no effect without --after ID: name the jobs to wait for")
    from holdfast.app.tasks import TaskHandle  # only here: importing it takes time

    app = target.app_with_tasks(_PURPOSE)
    definition = app.tasks.get(task)
    args, kwargs = decode_arguments(definition, document, arguments)
    chosen = TaskHandle(app, definition, definition.handler).options(
        headers=dict(pair(text, "--header", "NAME=TEXT") for text in headers), **options
    )

    async def put(opened: App) -> JobHandle:
        waiting = chosen
        if after:
            waiting = chosen.options(after=await whole_ids(opened, after), run_anyway=run_anyway)
        return await waiting.enqueue(*args, **kwargs)

    handle = target.run(put, app=app, creates=True)
    click.echo(handle.id)
    if not handle.created:
        click.echo(_not_enqueued(handle.id, options), err=True)


def _not_enqueued(job_id: str, options: Mapping[str, Any]) -> str:
    if options["job_id"] is not None and str(UUID(options["job_id"])) == job_id:
        return "A job with this id already exists: nothing was enqueued."
    if options["on_conflict"] == "replace":
        return "This job holds the unique key: it has the new arguments and time, unless it is running already."
    return "This job holds the unique key: nothing was enqueued."


def decode_arguments(task: Task, document: str | None, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as the types that the task declares, decoded from JSON as in a worker."""
    positional: list[msgspec.Raw] = []
    named: dict[str, msgspec.Raw] = {}
    if document is not None:
        positional, named = _read_document(document)
    for text in arguments:
        name, value = pair(text, "--arg", "NAME=JSON")
        if name in named:
            raise click.UsageError(f"the argument {name} is given twice")
        named[name] = _read_value(name, value)
    return task.signature.decode(msgspec.json.encode((positional, named)).decode())


def _read_document(document: str) -> tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]:
    try:
        # The form in which `job show --show-args` prints a call: positional arguments are in the leading list.
        return _wire.decode(document) if document.lstrip().startswith("[") else ([], _named.decode(document))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        message = f"--args is not a JSON object of arguments ({error}): write it like '{{\"order_id\": 7}}'"
        raise click.UsageError(message) from None


def _read_value(name: str, value: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        message = f"--arg {name}: {value!r} is not JSON; a string needs quotes inside quotes: --arg '{name}=\"…\"'"
        raise click.UsageError(message) from None
    return msgspec.Raw(value.encode())


def pair(text: str, option: str, form: str) -> tuple[str, str]:
    """Return the two parts of `NAME=…`; raise `UsageError` if the text has another form."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text!r} is not of the form {form}")
    return name, value
