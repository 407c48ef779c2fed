"""`holdfast torture`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from holdfast.cli.document import json_option, show_json
from holdfast.cli.failures import Failure, debug_option, is_debugging, warn
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import console
from holdfast.cli.text import has_password, line
from holdfast.errors import HoldfastError
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from holdfast.torture.ground import Ground
    from holdfast.torture.plan import Plan
    from holdfast.torture.progress import Progress
    from holdfast.torture.report import Report
    from holdfast.torture.server import OwnServer

URL: Final = "sqlite:///holdfast-torture.db"
_NAMES: Final = ("smoke", "standard", "release")
_INTERRUPTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--url", help=f"The store to torture.  [default: {URL}; $HOLDFAST_URL is not read]")
@click.option(
    "--server",
    type=click.Choice(["postgresql"]),
    help="Start a throw-away server from binaries on this machine, and restart it among the faults.",
)
@click.option(
    "--profile",
    "name",
    type=click.Choice(_NAMES),
    default="smoke",
    show_default=True,
    help="How much: seconds, minutes, or half an hour.",
)
@click.option("--streams", is_flag=True, help="Torture streams, consumers and their allocation instead of jobs.")
@click.option("--seed", type=click.IntRange(0), help="Draw the same work and the same faults again.")
@click.option("--jobs", type=click.IntRange(100), help="How many jobs, or events, at least.  [default: the profile's]")
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the report there as JSON, whatever the verdict.",
)
@click.option(
    "--history",
    "history_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep what every process saw in this new directory; without it only that of a bad run is kept.",
)
@click.option("--keep", is_flag=True, help="Leave the jobs and the effects in the store.")
@click.option("--yes", "-y", is_flag=True, help="Run on a store that holds jobs or tables of others, too.")
@json_option
@debug_option
@click.pass_context
def torture(ctx: click.Context, /, *, url: str | None, server: str | None, **more: Any) -> None:
    """Kill, freeze and cut off real workers on your own database, and check that nothing was lost or doubled.

    Exit code 1 on any violation, with the whole history of the first job that suffered it; exit code 4 if the run could
    not be done as planned, so that there is no verdict. A server given by --url is never restarted, and no table but
    the run's own is changed; one that holds jobs of others is refused without --yes.
    """
    if url is not None and server is not None:
        raise Failure("--url names a server that runs, --server starts one: give one of them", ExitCode.USAGE)
    if url is not None and has_password(url):
        warn("the URL on the command line holds a password, which everybody on this machine can read in the list")
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)
    from holdfast.torture.run import own_server

    with _unwound_by_signals(), contextlib.ExitStack() as stack:
        own = stack.enter_context(own_server(keeps=more["keep"])) if server is not None else None
        chosen = own.url if own is not None else url or URL
        report = _run(chosen, own, **more)
    ctx.exit(ExitCode.FINE if report.is_clean else ExitCode.WRONG)


@contextlib.contextmanager
def _unwound_by_signals() -> Generator[None]:
    """Have every signal that asks for an end unwind the command, as Ctrl-C does: whatever it has started is ended.

    What the caller has set to be ignored, as nohup does, stays ignored.
    """

    def unwind(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    asked = _asking() - {signal.SIGINT}
    before = {number: signal.signal(number, unwind) for number in asked}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _asking() -> set[signal.Signals]:
    return {number for number in _INTERRUPTED if signal.getsignal(number) is not signal.SIG_IGN}


def _run(  # noqa: PLR0913 - the options of the command, by name
    url: str,
    server: OwnServer | None,
    *,
    name: str,
    seed: int | None,
    jobs: int | None,
    report_file: Path | None,
    history_dir: Path | None,
    keep: bool,
    yes: bool,
    as_json: bool,
    streams: bool,
) -> Report:
    from holdfast.torture.run import ground_of, new_history, require_alone
    from holdfast.torture.streams.ground import stream_ground_of

    ground = stream_ground_of(url) if streams else ground_of(url)
    require_alone(ground, among_others=yes)
    plan = _plan(name, ground.kind, seed=seed, jobs=jobs, streams=streams)
    history = new_history(history_dir, plan.run)
    if not as_json:
        what = ("events", "nodes", "appenders") if streams else ("jobs", "workers", "producers")
        click.echo(
            f"{plan.profile.jobs:,} {what[0]}, {plan.profile.workers} {what[1]}, {plan.profile.producers} {what[2]}, "
            f"{'recovery' if streams else 'lease'} {plan.lease:g} s, profile {name}, seed {plan.seed}"
        )
        click.echo(line(ground.shown))
    report = _reported(plan, ground, server, history=history, as_json=as_json)
    if report.is_clean and history_dir is None:
        report.history = ""  # it is removed below
    document = msgspec.to_builtins(report)
    if report_file is not None:
        report_file.write_text(json.dumps(document, indent=2) + "\n", encoding="ascii")
    if as_json:
        show_json(document)
    else:
        from holdfast.cli.torture.report import show_report

        show_report(report)
    if server is not None and not report.is_clean:
        server.is_kept = True
    _clean(ground, server, report, history, keeps_store=keep, keeps_history=history_dir is not None, as_json=as_json)
    return report


def _reported(plan: Plan, ground: Ground, server: OwnServer | None, *, history: Path, as_json: bool) -> Report:
    """Run; an end without a report says where the history is, and never has the exit code of a violation."""
    try:
        return _interruptible(plan, ground, server, history=history, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        message = f"interrupted: every process of the run was ended; what was written until then is in {history}"
        raise Failure(message, ExitCode.INTERRUPTED) from None
    except Exception as error:
        warn(f"the run came to no verdict; what was written until then is in {history}")
        if isinstance(error, HoldfastError) and Failure.of(error).code is ExitCode.WRONG:
            raise RunFailed(str(error)) from error
        raise


def _plan(name: str, store: str, *, seed: int | None, jobs: int | None, streams: bool) -> Plan:
    from holdfast.torture.calibrate import fitting_lease
    from holdfast.torture.plan import Plan, profile_of
    from holdfast.torture.streams.profiles import stream_profile_of

    profile = stream_profile_of(name, store) if streams else profile_of(name, store)
    if jobs is not None:
        profile = msgspec.structs.replace(profile, jobs=jobs)
    drawn = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    return Plan(name=name, profile=profile, seed=drawn, lease=fitting_lease())


def _work(
    plan: Plan, ground: Ground, server: OwnServer | None, *, history: Path
) -> tuple[Progress, Callable[[], Coroutine[Any, Any, Report]]]:
    """Return what is to be run, of jobs or of streams, and what is known of it while it runs."""
    from holdfast.torture.progress import Progress
    from holdfast.torture.run import torture as run
    from holdfast.torture.streams.conductor import StreamProgress
    from holdfast.torture.streams.ground import is_of_streams
    from holdfast.torture.streams.run import torture_streams

    if is_of_streams(ground):
        seen = StreamProgress(plan, ground.shown)
        return seen, lambda: torture_streams(plan, ground, history=history, progress=seen, server=server)
    progress = Progress(plan, ground.shown)
    return progress, lambda: run(plan, ground, history=history, progress=progress, server=server)


def _interruptible(plan: Plan, ground: Ground, server: OwnServer | None, *, history: Path, as_json: bool) -> Report:
    """Run, and show how it goes; Ctrl-C ends everything that was started."""
    from holdfast.cli.torture.view import View

    progress, run = _work(plan, ground, server, history=history)

    async def whole() -> Report:
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(run())
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in _asking()}
        for number in before:
            loop.add_signal_handler(number, running.cancel)
        try:
            with View(console(stderr=as_json), progress) as view:
                while not running.done():
                    await asyncio.wait({running}, timeout=view.period)
                    view.refresh()
            return running.result()
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    return asyncio.run(whole())


def _clean(
    ground: Ground,
    server: OwnServer | None,
    report: Report,
    history: Path,
    *,
    keeps_store: bool,
    keeps_history: bool,
    as_json: bool,
) -> None:
    """Leave nothing behind but what was asked for, or what shows a violation."""

    def say(text: str) -> None:
        click.echo(line(text), err=as_json)

    if not report.is_clean:
        say(f"The store is left as it is, and the history is in {history}.")
    elif not keeps_history:
        shutil.rmtree(history, ignore_errors=True)
    if server is not None and server.is_kept:
        say(f"The server is stopped in order, and its data are left in {server.data}; it is started again by:")
        say(server.how_to_start)
    elif report.is_clean and not keeps_store:
        say(ground.wipe())
