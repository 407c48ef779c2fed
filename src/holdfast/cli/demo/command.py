"""The command `holdfast demo`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from holdfast.cli.demo.opening import prepared_run, stopped, with_records
from holdfast.cli.demo.options import batch_option, chosen_url, plan_options, source, url_option
from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.report import show_verdict
from holdfast.cli.demo.run import DemoCrew, DemoInterrupted, consume, new_plan, produce, stopping
from holdfast.cli.demo.steps import clean_command, consume_command, produce_command, verify_command
from holdfast.cli.demo.verify import count
from holdfast.cli.demo.view import DemoView
from holdfast.cli.exit_errors import Noun, debug_option
from holdfast.cli.table import console
from holdfast.model.counted import counted
from holdfast.reports.text import line
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App


@click.group(cls=Noun, invoke_without_command=True, short_help="Kill workers, and see every job take effect once.")
@plan_options
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    metavar="N",
    default=4,
    show_default=True,
    help="The number of processes.",
)
@batch_option
@click.option(
    "--kill", type=click.IntRange(0), metavar="N", default=3, show_default=True, help="The number of workers to kill."
)
@url_option
@debug_option
@click.pass_context
def demo(
    ctx: click.Context, /, *, workers: int, batch_size: int, kill: int, url: str | None, fresh: bool, **options: Any
) -> None:
    """Process many jobs with several workers, kill some of them on the way, and count the effects.

    Ctrl-C interrupts the run; the same command continues it. Exits with code 1 if a job was doubled or lost.

    The demo uses a separate store: a SQLite file that contains nothing else, on PostgreSQL the schema holdfast_demo, on
    MySQL the database holdfast_demo, or on Redis the store holdfast_demo. It rejects a store with other data.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = url if source(ctx, "url") is ParameterSource.COMMANDLINE else None
        return
    crew = DemoCrew(workers=workers, batch_size=batch_size, kill=kill)
    chosen = chosen_url(url)
    is_good = with_records(chosen, lambda records: _whole(records, new_plan(**options), crew, url=chosen), fresh=fresh)
    ctx.exit(ExitCode.FINE if is_good else ExitCode.WRONG)


async def _whole(records: Records, plan: DemoPlan, crew: DemoCrew, *, url: str) -> bool:
    run = await prepared_run(records, plan)
    _announce(run, crew, records.app)
    asked = asyncio.Event()
    with stopping(asked), DemoView(console()) as view:
        try:
            run = await produce(records, run, lambda number: view.producing(number, run.plan.jobs), asked)
            await consume(records, run, crew, url=url, view=view, asked=asked)
        except DemoInterrupted as interrupted:
            raise stopped(f" after {interrupted.ended:,} jobs") from None
    run = await records.run() or run
    return show_verdict(run, await count(records, run)).is_good


def _announce(run: DemoRun, crew: DemoCrew, app: App) -> None:
    plan = run.plan
    click.echo(f"Store: {line(app.backend.url)}{_origin()}")
    if run.produced:
        click.echo("Continuing the unfinished run.")
    click.echo(
        f"{counted(plan.jobs, 'job')}, {counted(crew.workers, 'worker')}, success rate {plan.success_rate:g}, "
        f"at most {counted(plan.max_attempts, 'attempt')}, seed {plan.seed}\n"
    )


def _origin() -> str:
    """Return the source of the URL, if it is not on the command line."""
    return " (from $HOLDFAST_URL)" if source(click.get_current_context(), "url") is ParameterSource.ENVIRONMENT else ""


for _step in (produce_command, consume_command, verify_command, clean_command):
    demo.add_command(_step)
