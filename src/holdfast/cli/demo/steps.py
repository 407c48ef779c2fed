"""The steps of a demo as separate commands, for users who start the workers themselves."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import click

from holdfast.cli.confirm import require_consent
from holdfast.cli.demo.choice import records_of
from holdfast.cli.demo.cleaning import clean
from holdfast.cli.demo.opening import closing, prepared_run, quieten, required_run, stopped, with_records
from holdfast.cli.demo.options import batch_option, chosen_url, plan_options, url_option
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.report import show_verdict
from holdfast.cli.demo.run import DemoInterrupted, new_plan, produce, stopping
from holdfast.cli.demo.verify import count
from holdfast.cli.demo.view import DemoView
from holdfast.cli.demo.worker import DemoReport, DemoWorker
from holdfast.cli.exit_errors import debug_option
from holdfast.cli.table import console
from holdfast.cli.target import require_file
from holdfast.errors import StoreUnavailable
from holdfast.reports.text import line
from holdfast.runtime.exit_code import ExitCode


@click.command("produce")
@plan_options
@url_option
@debug_option
def produce_command(*, url: str | None, fresh: bool, **options: Any) -> None:
    """Produce the jobs of a run, or the missing ones of an unfinished run."""

    async def whole(records: Records) -> None:
        run = await prepared_run(records, new_plan(**options))
        asked = asyncio.Event()
        with stopping(asked), DemoView(console()) as view:
            try:
                run = await produce(records, run, lambda number: view.producing(number, run.plan.jobs), asked)
            except DemoInterrupted:
                raise stopped() from None
        click.echo(f"{run.produced:,} jobs produced; start workers with `holdfast demo consume`.")

    with_records(chosen_url(url), whole, fresh=fresh)


@click.command("consume", short_help="Consume jobs until none is left.")
@click.option("--name", default="worker", show_default=True, metavar="NAME", help="The name of this worker.")
@batch_option
@url_option
@debug_option
def consume_command(*, name: str, batch_size: int, url: str | None) -> None:
    """Consume jobs until none is left. Start several of these, and kill them at any time."""

    async def whole(records: Records) -> None:
        run = await required_run(records)
        shown = [0]

        def show(report: DemoReport) -> None:
            if report.done >= shown[0] + 1000:
                shown[0] = report.done
                click.echo(
                    f"{name} (pid {os.getpid()}): {report.done:,} done, {report.failed_attempts:,} failed attempts"
                )

        worker = DemoWorker(records, run, name=name, batch_size=batch_size, on_report=show)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, worker.stop)
        report = await worker.run()
        click.echo(
            f"{name} (pid {os.getpid()}) stopped: {report.done:,} done, {report.failed_attempts:,} failed attempts, "
            f"{report.rescued:,} rescued from other workers, {report.lost:,} lost to other workers"
        )

    with_records(chosen_url(url), whole, creates=False)


@click.command("verify", short_help="Compare jobs, effects and ledger.")
@url_option
@debug_option
@click.pass_context
def verify_command(ctx: click.Context, *, url: str | None) -> None:
    """Compare the produced jobs with the effects and the ledger; exit code 1 on any mismatch."""

    async def whole(records: Records) -> bool:
        run = await required_run(records)
        return show_verdict(run, await count(records, run)).is_good

    ctx.exit(ExitCode.FINE if with_records(chosen_url(url), whole, creates=False) else ExitCode.WRONG)


@click.command("clean", short_help="Remove the data of a demo.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@url_option
@debug_option
def clean_command(*, url: str | None, yes: bool) -> None:
    """Remove the data of a demo: the file or schema if it contains nothing else, otherwise only the demo's tables."""
    quieten()

    async def whole() -> str:
        from holdfast.app.app import App  # only here: importing it takes time

        app = App(chosen_url(url))
        try:
            require_file(app)
        except StoreUnavailable:
            return f"There is no demo to remove at {app.backend.url}."
        async with closing(app):
            return await clean(records_of(app), lambda question: require_consent(question, yes=yes))

    click.echo(line(asyncio.run(whole())))
