"""`holdfast demo`, and its steps for those who start consumers themselves."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click

from holdfast.app.app import App
from holdfast.cli.demo.cleaning import clean
from holdfast.cli.demo.consumer import Consumer, Report
from holdfast.cli.demo.plan import Plan, Run
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.report import show_verdict
from holdfast.cli.demo.stage import Crew, Interrupted, consume, new_plan, produce, stopping
from holdfast.cli.demo.verify import count
from holdfast.cli.demo.view import View
from holdfast.cli.failures import Code, Failure, debug_option, is_debugging
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import console
from holdfast.cli.target import require_file
from holdfast.cli.text import line
from holdfast.cli.times import duration
from holdfast.errors import StoreUnavailable

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
URL: Final = "sqlite:///holdfast-demo.db"
_SHORTEST = 0.5


def _lease(text: str) -> float:
    """Return a duration that a consumer can keep to."""
    seconds = duration(text)
    if seconds < _SHORTEST:
        raise click.BadParameter(f"{text} is too short for a batch: give at least {_SHORTEST:g} seconds")
    return seconds


url_option = click.option(
    "--url",
    help=f"The store.  [default: {URL}, in the current directory; $HOLDFAST_URL is not read]",
)
batch_option = click.option(
    "--batch-size", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Works per claim and commit."
)
_PLAN = (
    click.option("--jobs", type=click.IntRange(1), default=100_000, show_default=True, help="How many works."),
    click.option(
        "--success-rate", type=click.FloatRange(0, 1), default=0.9, show_default=True, help="Chance of one try."
    ),
    click.option(
        "--max-attempts", type=click.IntRange(1, 100), default=10, show_default=True, help="Tries before giving up."
    ),
    click.option(
        "--work-timeout",
        type=_lease,
        default="5",
        show_default=True,
        metavar="DURATION",
        help="The lease: after this, the works of a dead consumer are free again.",
    ),
    click.option("--seed", type=int, help="Makes the outcome of every try repeatable."),
    click.option("--fresh", is_flag=True, help="Clean first, whatever the store holds of a demo."),
)


def plan_options(command: Command) -> Command:
    """Give a command the options that make a plan."""
    for option in reversed(_PLAN):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@plan_options
@click.option("--consumers", type=click.IntRange(1, 64), default=4, show_default=True, help="How many processes.")
@batch_option
@click.option("--kill", type=click.IntRange(0), default=3, show_default=True, help="How many consumers are killed.")
@url_option
@debug_option
@click.pass_context
def demo(
    ctx: click.Context, /, *, consumers: int, batch_size: int, kill: int, url: str | None, fresh: bool, **options: Any
) -> None:
    """See many works done by several consumers, some of them killed on the way, and count what came of it.

    Ctrl-C interrupts; the same command goes on where it stopped. Exit code 1 if a work was doubled or lost.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    crew = Crew(consumers=consumers, batch_size=batch_size, kill=kill)
    chosen = url or URL
    is_good = _with(chosen, lambda records: _whole(records, new_plan(**options), crew, url=chosen), fresh=fresh)
    ctx.exit(Code.FINE if is_good else Code.WRONG)


async def _whole(records: Records, plan: Plan, crew: Crew, *, url: str) -> bool:
    run = await _prepared(records, plan)
    asked = asyncio.Event()
    if not run.is_finished:
        _announce(run, crew, records.app)
        with stopping(asked), View(console()) as view:
            try:
                run = await produce(records, run, lambda number: view.producing(number, run.plan.jobs), asked)
                await consume(records, run, crew, url=url, view=view, asked=asked)
            except Interrupted as interrupted:
                message = f"interrupted after {interrupted.ended:,} works; `holdfast demo` goes on from there"
                raise Failure(message, Code.INTERRUPTED) from None
    run = await records.run() or run
    return show_verdict(run, await count(records, run)).is_good


def _announce(run: Run, crew: Crew, app: App) -> None:
    plan = run.plan
    if run.produced:
        click.echo("Going on with the run that the store holds.")
    click.echo(
        f"{_plural(plan.jobs, 'work')}, {_plural(crew.consumers, 'consumer')}, success rate {plan.success_rate:g}, "
        f"at most {_plural(plan.max_attempts, 'attempt')}, seed {plan.seed}"
    )
    click.echo(line(app.backend.url))


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


async def _prepared(records: Records, plan: Plan) -> Run:
    """Return the run to go on with, or a new one."""
    run = await records.run()
    if run is None:
        return await records.begin(plan)
    if run.is_finished:
        click.echo("The store holds a run that is finished: `holdfast demo --fresh` starts a new one.\n")
    elif run.plan != plan and _is_any_given():
        click.echo("The store holds a run that is unfinished: its own plan holds; --fresh starts a new one.")
    return run


def _is_any_given() -> bool:
    context = click.get_current_context()
    names = ("jobs", "success_rate", "max_attempts", "work_timeout", "seed")
    return any(context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in names)


# --- the steps --------------------------------------------------------------------------------------------------------


@demo.command("produce")
@plan_options
@url_option
@debug_option
@click.pass_obj
def produce_command(above: str | None, /, *, url: str | None, fresh: bool, **options: Any) -> None:
    """Produce the works of a run, or those that are missing."""

    async def whole(records: Records) -> None:
        run = await _prepared(records, new_plan(**options))
        asked = asyncio.Event()
        with stopping(asked), View(console()) as view:
            try:
                run = await produce(records, run, lambda number: view.producing(number, run.plan.jobs), asked)
            except Interrupted:
                raise Failure("interrupted; the same command goes on from there", Code.INTERRUPTED) from None
        click.echo(f"{run.produced:,} works are produced; start consumers with `holdfast demo consume`.")

    _with(url or above or URL, whole, fresh=fresh)


@demo.command("consume")
@click.option("--name", default="consumer", show_default=True, help="What this consumer is called in the store.")
@batch_option
@url_option
@debug_option
@click.pass_obj
def consume_command(above: str | None, *, name: str, batch_size: int, url: str | None) -> None:
    """Consume works until none is left; start as many of these as you like, and kill them as you like."""

    async def whole(records: Records) -> None:
        run = await _required(records)
        shown = [0]

        def tell(report: Report) -> None:
            if report.done >= shown[0] + 1000:
                shown[0] = report.done
                click.echo(f"{name} (pid {os.getpid()}): {report.done:,} done, {report.failed_tries:,} failed tries")

        consumer = Consumer(records, run, name=name, batch_size=batch_size, told=tell)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, consumer.stop)
        report = await consumer.run()
        click.echo(
            f"{name} (pid {os.getpid()}) has ended: {report.done:,} done, {report.failed_tries:,} failed tries, "
            f"{report.rescued:,} rescued from others, {report.lost:,} lost to others"
        )

    _with(url or above or URL, whole, creates=False)


@demo.command("verify")
@url_option
@debug_option
@click.pass_context
def verify_command(ctx: click.Context, *, url: str | None) -> None:
    """Compare what was produced with the effects and the ledger; exit code 1 if anything is wrong."""

    async def whole(records: Records) -> bool:
        run = await _required(records)
        return show_verdict(run, await count(records, run)).is_good

    ctx.exit(Code.FINE if _with(url or ctx.obj or URL, whole, creates=False) else Code.WRONG)


@demo.command("clean")
@url_option
@debug_option
@click.pass_obj
def clean_command(above: str | None, *, url: str | None) -> None:
    """Remove what a demo has left: the database file if it holds nothing else, or else the demo's own tables."""
    _quieten()

    async def whole() -> str:
        chosen = url or above or URL
        try:
            require_file(App(chosen))
        except StoreUnavailable:
            return "There is nothing to clean."
        return await clean(chosen)

    click.echo(line(asyncio.run(whole())))


def _quieten() -> None:
    """Keep what the store logs out of the picture."""
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)


def _require_file(app: App) -> None:
    try:
        require_file(app)
    except StoreUnavailable as error:
        message = f"{str(error).splitlines()[0]}: `holdfast demo produce` makes one, or name another with --url"
        raise Failure(message, Code.UNAVAILABLE) from error


async def _required(records: Records) -> Run:
    run = await records.run()
    if run is None:
        raise Failure("the store holds no run of a demo: `holdfast demo produce` begins one")
    return run


def _with(url: str, work: Callable[[Records], Awaitable[T]], *, creates: bool = True, fresh: bool = False) -> T:
    """Do something to the store of a demo, and close it. With `fresh`, clean it first."""
    _quieten()

    async def whole() -> T:
        if fresh:
            await clean(url)
        app = App(url)
        if not creates:
            _require_file(app)
        async with app:
            records = Records(app)
            await records.require_sqlite()
            return await work(records)

    return asyncio.run(whole())
