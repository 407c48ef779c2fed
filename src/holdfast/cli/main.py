"""The command line: its nouns, and the entry point."""

from __future__ import annotations

from importlib.metadata import version

import click

from holdfast.cli.bench import bench
from holdfast.cli.category import category
from holdfast.cli.consumer import consumer
from holdfast.cli.demo.command import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.exit_errors import MEANINGS, Root
from holdfast.cli.job import job
from holdfast.cli.lease import lease
from holdfast.cli.node import leader, node
from holdfast.cli.queue import queue
from holdfast.cli.schema import schema
from holdfast.cli.top import top
from holdfast.cli.torture.command import torture
from holdfast.cli.worker import worker

COMMANDS: tuple[click.Command, ...] = (
    worker,
    job,
    queue,
    lease,
    consumer,
    category,
    node,
    leader,
    schema,
    doctor,
    top,
    demo,
    bench,
    torture,
)

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


@click.group(
    name=_NAME,
    cls=Root,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version(_NAME), prog_name=_NAME)
def cli() -> None:
    """Background jobs and event streams on your database: no job is lost, and no effect happens twice.

    \b
    holdfast demo                               kill consumers, and count the effects
    holdfast worker run --app shop.tasks:app    run the tasks of an app
    holdfast job list                           list waiting, running and failed jobs
    holdfast doctor                             check the store and the workers

    The store is --url, else $HOLDFAST_URL, else the store of the app, else sqlite:///holdfast.db.
    """  # noqa: D301 - \b keeps click from joining lines


for _command in COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command line."""
    cli.main(prog_name=_NAME)
