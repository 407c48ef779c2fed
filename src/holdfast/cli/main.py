"""The command line: the list of its nouns, and its entry."""

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
    """Hand out work that is done by one worker at a time, and takes effect once.

    \b
    holdfast demo                               see it work, and consumers die
    holdfast worker run --app shop.tasks:app    run the tasks of an app
    holdfast job list                           see what waits, runs and failed
    holdfast doctor                             see whether all is well

    The store is given by --url or $HOLDFAST_URL; else it is the one of the app, or sqlite:///holdfast.db.
    """  # noqa: D301 - \b keeps click from joining lines


for _command in COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command line as this program."""
    cli.main(prog_name=_NAME)
