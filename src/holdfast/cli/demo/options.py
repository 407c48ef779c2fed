"""The options of the demo's commands, and the store that they select."""

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
    """Return a lease duration that is long enough for a batch."""
    seconds = duration(text)
    if seconds < _SHORTEST:
        raise click.BadParameter(f"{text} is too short for a batch: use at least {_SHORTEST:g} seconds")
    return seconds


url_option = click.option(
    "--url",
    envvar="HOLDFAST_URL",
    help=f"Where the demo creates its separate store; or $HOLDFAST_URL.  [default: {URL}]",
)
batch_option = click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=100,
    show_default=True,
    help="Jobs per claim and commit.",
)
_PLAN = (
    click.option(
        "--jobs", type=click.IntRange(1), metavar="N", default=100_000, show_default=True, help="The number of jobs."
    ),
    click.option(
        "--success-rate",
        type=click.FloatRange(0, 1),
        metavar="P",
        default=0.9,
        show_default=True,
        help="The probability that an attempt succeeds.",
    ),
    click.option(
        "--max-attempts",
        type=click.IntRange(1, 100),
        metavar="N",
        default=10,
        show_default=True,
        help="Attempts before a job fails.",
    ),
    click.option(
        "--work-timeout",
        type=_lease,
        default="5s",
        show_default=True,
        metavar="DURATION",
        help="The lease: after this time, the jobs of a dead worker are available again.",
    ),
    click.option("--seed", type=int, metavar="N", help="Makes the outcome of every attempt reproducible."),
    click.option("--fresh", is_flag=True, help="Discard an unfinished run and start a new one."),
)


def plan_options(command: Command) -> Command:
    """Add the options of a plan to a command."""
    for option in reversed(_PLAN):
        command = option(command)
    return command


def source(context: click.Context, name: str) -> ParameterSource | None:
    """Return the source of an option's value."""
    return context.get_parameter_source(name)


def chosen_url(url: str | None) -> str:
    """Return the URL of the demo's store: from the command, from `demo` before it, or from the environment."""
    context = click.get_current_context()
    check_url(url)
    above: str | None = context.obj
    is_given = source(context, "url") is ParameterSource.COMMANDLINE
    return own_url((url if is_given or above is None else above) or URL)
