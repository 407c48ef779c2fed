"""Remedies for what users of Celery type: `holdfast -A orders worker -c 4`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

_OPTIONS = {
    "-A": "the argument MODULE:ATTR, as in `holdfast worker run orders:app`",
    "-c": "--concurrency",
    "-Q": "--queues",
    "-l": "--log-level",
    "--loglevel": "--log-level",
    "-n": "--worker-id",
    "--hostname": "--worker-id",
}
_COMMANDS = {
    "beat": "workers run schedules themselves; `holdfast schedule list` shows them",
    "call": "use `holdfast job enqueue`",
    "control": "use `holdfast queue pause`, `holdfast job cancel` and the like",
    "events": "use `holdfast top`",
    "flower": "use `holdfast server run`, the dashboard, or `holdfast top`",
    "inspect": "use `holdfast lease list` for running jobs, and `holdfast worker list`",
    "purge": "use `holdfast job cancel --state ready --queue QUEUE`",
    "result": "use `holdfast job show ID --show-args`",
    "status": "use `holdfast worker list`, or `holdfast doctor`",
}
_BEFORE = {"-A": "--app", "--app": "--app", "--app-dir": "--app-dir", "--url": "--url"}
_VALUE = 2  # an option and its value


def remedy_for(args: Sequence[str]) -> str | None:
    """Return what to type instead of `holdfast -A orders worker` and the like: our options follow the command."""
    name, equals, value = args[0].partition("=") if args else ("", "", "")
    option = _BEFORE.get(name)
    if option is None:
        return None
    if equals:
        rest = list(args[1:])
    elif len(args) >= _VALUE:
        value, rest = args[1], list(args[_VALUE:])
    else:
        return f"{name} follows the command"
    if option == "--app" and rest[:1] == ["worker"]:
        app = value if ":" in value else f"{value}:app"
        words = ["worker", "run", app]  # the other options of Celery's worker have other names here
    else:
        words = [*rest, option, value] if rest else ["job", "list", option, value]
    return f"{name} follows the command: `{shlex.join(['holdfast', *words])}`"


def command_for(name: str) -> str | None:
    """Return what to use for a command of Celery."""
    return _COMMANDS.get(name)


class CommandWithRemedies(click.Command):
    """A command that answers an option of Celery with ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = _OPTIONS.get(error.option_name)
            if ours is None:
                raise
            raise click.UsageError(f"there is no option {error.option_name}: use {ours}", ctx) from None
