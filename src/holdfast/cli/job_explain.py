"""`holdfast job explain`: why a job is not running, in one sentence with the remedy."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, get_args

import click
import msgspec

from holdfast.cli.ids import whole_id
from holdfast.cli.json_output import json_option, seconds, show_json
from holdfast.cli.suggested_commands import runnable
from holdfast.cli.table import console
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.explanation import Cause, Explanation
from holdfast.reports.explanation_text import words
from holdfast.reports.text import wrapped

if TYPE_CHECKING:
    from holdfast.app.app import App


@click.command()
@click.argument("job_id", metavar="ID")
@json_option
@store_options
def explain(target: StoreTarget, *, job_id: str, as_json: bool) -> None:
    """Say in one sentence why a job is not running, and what to do about it.

    \b
    holdfast job explain 01a1de74-f8d6
    """  # noqa: D301 - \b keeps click from joining lines

    async def look(app: App) -> Explanation:
        return await app.jobs.explain(await whole_id(app, job_id))

    explanation = target.run(look)
    matter, remedy = map(runnable, words(explanation))
    if as_json:
        show_json({**_fields(explanation), "finding": matter, "remedy": remedy})
    else:
        out = console()
        sentence = f"{matter}: {remedy}."
        click.echo(wrapped(sentence, out.width) if out.is_terminal else sentence)


def _fields(explanation: Explanation) -> dict[str, Any]:
    """Return the data of an explanation: the job, the name of the cause, and its details."""
    return {
        "id": explanation.job_id,
        "state": explanation.state,
        "queue": explanation.queue,
        "task": explanation.task,
        "cause": explanation.cause.__struct_config__.tag,
        "details": _details(explanation.cause),
    }


def _details(cause: Cause) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for field in msgspec.structs.fields(cause):
        value = getattr(cause, field.name)
        parts = cast("tuple[Any, ...]", value)  # if it is one
        if isinstance(value, Explanation):
            details[field.name] = _fields(value)
        elif timedelta in (field.type, *get_args(field.type)):
            details[f"{field.name}_seconds"] = seconds(value)
        elif isinstance(value, tuple):
            details[field.name] = [
                msgspec.structs.asdict(part) if isinstance(part, msgspec.Struct) else part for part in parts
            ]
        else:
            details[field.name] = value
    return details
