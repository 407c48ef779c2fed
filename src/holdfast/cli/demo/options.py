"""The options of the demo's commands, and which store they lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from holdfast.cli.demo.cleaning import URL
from holdfast.cli.demo.target import own_url
from holdfast.cli.target import check_url
from holdfast.cli.times import duration

Command = TypeVar("Command", bound=Callable[..., Any])
_SHORTEST = 0.5


def _lease(text: str) -> float:
    """Return a duration that a consumer can keep to."""
    seconds = duration(text)
    if seconds < _SHORTEST:
        raise click.BadParameter(f"{text} is too short for a batch: give at least {_SHORTEST:g} seconds")
    return seconds


url_option = click.option(
    "--url",
    envvar="HOLDFAST_URL",
    help=f"Where the demo makes a store of its own; or $HOLDFAST_URL.  [default: {URL}]",
)
batch_option = click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=100,
    show_default=True,
    help="Works per claim and commit.",
)
_PLAN = (
    click.option(
        "--jobs", type=click.IntRange(1), metavar="N", default=100_000, show_default=True, help="How many works."
    ),
    click.option(
        "--success-rate",
        type=click.FloatRange(0, 1),
        metavar="P",
        default=0.9,
        show_default=True,
        help="Chance of one try.",
    ),
    click.option(
        "--max-attempts",
        type=click.IntRange(1, 100),
        metavar="N",
        default=10,
        show_default=True,
        help="Tries before giving up.",
    ),
    click.option(
        "--work-timeout",
        type=_lease,
        default="5s",
        show_default=True,
        metavar="DURATION",
        help="The lease: after this, the works of a dead consumer are free again.",
    ),
    click.option("--seed", type=int, metavar="N", help="Makes the outcome of every try repeatable."),
    click.option("--fresh", is_flag=True, help="Begin anew, though a run of the demo is unfinished."),
)


def plan_options(command: Command) -> Command:
    """Give a command the options that make a plan."""
    for option in reversed(_PLAN):
        command = option(command)
    return command


def source(context: click.Context, name: str) -> ParameterSource | None:
    """Return where the value of an option came from."""
    return context.get_parameter_source(name)


def chosen_url(url: str | None) -> str:
    """Return the URL of the demo's own store: given to the command, to `demo` before it, or by the environment."""
    context = click.get_current_context()
    check_url(url)
    above: str | None = context.obj
    is_given = source(context, "url") is ParameterSource.COMMANDLINE
    return own_url((url if is_given or above is None else above) or URL)
