"""The command line: its nouns, and the entry point."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import NamedTuple

import click

from holdfast.cli.celery_remedies import command_for, remedy_for
from holdfast.cli.exit_errors import MEANINGS, Root
from holdfast.reports.text import mask


class LazyCommand(NamedTuple):
    """A command that is imported when it is used: the attribute of its name, in this module."""

    module: str
    help: str


_COMMANDS = {
    "worker": LazyCommand("worker", "Run and list workers."),
    "job": LazyCommand("job", "Enqueue, inspect, retry, cancel and delete jobs."),
    "queue": LazyCommand("queue", "List, pause, resume and limit queues."),
    "task": LazyCommand("task", "List, pause, resume and limit tasks."),
    "schedule": LazyCommand("schedule", "List, pause, resume, run and define schedules."),
    "lease": LazyCommand("lease", "List leases, and reset them."),
    "consumer": LazyCommand("consumer", "List, pause, resume and reset consumers, and manage their parked events."),
    "category": LazyCommand("category", "Create and inspect categories of streams."),
    "event": LazyCommand("event", "Append and read events."),
    "node": LazyCommand("node", "Inspect the nodes that run consumers."),
    "leader": LazyCommand("node", "Inspect the node that allocates partitions."),
    "server": LazyCommand("server", "Run the HTTP server: API and dashboard."),
    "schema": LazyCommand("schema", "Install, upgrade and check the tables."),
    "doctor": LazyCommand("doctor", "Check the store and the workers."),
    "top": LazyCommand("top", "Watch the store: queues, rates, workers, failures and consumers, redrawn every second."),
    "demo": LazyCommand("demo.command", "Kill workers, and see every job take effect once."),
    "bench": LazyCommand("bench", "Measure a store, compared with hand-written loops."),
    "torture": LazyCommand("torture.command", "Kill and freeze real workers on your database, and check the outcome."),
}

_NAME = "holdfast"
_CODES = "\n".join(f"{int(code):>3}  {meaning}" for code, meaning in MEANINGS.items())
_EPILOG = f"""\b
Exit codes:
{_CODES}

\b
Completion:
bash  eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"
zsh   eval "$(_HOLDFAST_COMPLETE=zsh_source holdfast)"
fish  _HOLDFAST_COMPLETE=fish_source holdfast | source
"""


class Commands(Root):
    """The nouns. Their modules are imported only when a command is used: `holdfast --help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        lazy = _COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        found: click.Command = getattr(import_module(f"holdfast.cli.{lazy.module}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raise `UsageError` with the one to use if there is none."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ours = command_for(args[0])
            if ours is not None:
                raise click.UsageError(f"No such command {args[0]!r}: {ours}", ctx)
            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            if close:
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise `UsageError` with the remedy for options that follow the command."""
        remedy = remedy_for(args)
        if remedy is not None:
            raise click.UsageError(mask(remedy), ctx)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in _COMMANDS.items()])


@click.group(
    name=_NAME,
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name=_NAME, prog_name=_NAME)
def cli() -> None:
    """Background jobs and event streams on your database: no job is lost, and no effect happens twice.

    \b
    holdfast demo                         kill workers, and count the effects
    holdfast worker run shop.tasks:app    run the tasks of an app
    holdfast job list                     list recent jobs of every state
    holdfast doctor                       check the store and the workers

    The store is --url, else $HOLDFAST_URL, else the store of the app, else sqlite:///holdfast.db. The app is --app,
    else $HOLDFAST_APP; its module is looked up in --app-dir, else in the current directory.
    """  # noqa: D301 - \b keeps click from joining lines


def main() -> None:
    """Run the command line."""
    cli.main(prog_name=_NAME)
