"""`holdfast torture`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.exit_errors import ExitError, debug_option, is_debugging, warn
from holdfast.cli.json_output import json_option
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import console
from holdfast.cli.text import has_password
from holdfast.cli.torture.output import Teller, require_writable, write_report
from holdfast.cli.torture.signals import asking, unwound_by_signals
from holdfast.errors import HoldfastError
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.torture.plan import RunPlan
    from holdfast.torture.progress import RunProgress
    from holdfast.torture.report import RunReport
    from holdfast.torture.server import OwnServer
    from holdfast.torture.target import Target

URL: Final = "sqlite:///holdfast-torture.db"
_NAMES: Final = ("smoke", "standard", "release")


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
@click.option("--yes", "-y", is_flag=True, help="Run on a store that holds anything of others, too.")
@json_option
@debug_option
@click.pass_context
def torture(ctx: click.Context, /, *, url: str | None, server: str | None, **more: Any) -> None:
    """Kill, freeze and cut off real workers on your own database, and check that nothing was lost or doubled.

    Exit code 1 on any violation, with the whole history of the first job that suffered it; exit code 4 if the run could
    not be done as planned, so that there is no verdict, or one that shows less than it was to. A server given by --url
    is never restarted. A store that holds anything of others is refused without --yes. With it none of that is removed,
    but workers of the run do for others what any worker does: they give jobs back whose lease has expired, and make
    those ready that are due.
    """
    if url is not None and server is not None:
        raise ExitError("--url names a server that runs, --server starts one: give one of them", ExitCode.USAGE)
    if url is not None and has_password(url):
        warn("the URL on the command line holds a password, which everybody on this machine can read in the list")
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)
    with unwound_by_signals() as unwinding, contextlib.ExitStack() as stack:
        try:
            own = _started(stack, keeps=more["keep"]) if server is not None else None
            chosen = own.url if own is not None else url or URL
            code = _run(chosen, own, **more)
        finally:
            unwinding.has_begun = True  # whatever the stack has to end is ended, however often somebody asks
    ctx.exit(code)


def _started(stack: contextlib.ExitStack, *, keeps: bool) -> OwnServer:
    from holdfast.torture.run import own_server

    try:
        return stack.enter_context(own_server(keeps=keeps))
    except OSError as error:  # as when the disk is full
        raise RunFailed(f"the server could not be started: {error}") from error


def _code_of(report: RunReport, *, is_written: bool) -> ExitCode:
    """A violation is told whatever else went wrong; a run that shows less than it was to is not fine."""
    if not report.is_clean:
        return ExitCode.WRONG
    return ExitCode.FINE if report.reached and is_written else ExitCode.UNDECIDED


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
) -> ExitCode:
    from holdfast.torture.run import ground_of, new_history, require_alone
    from holdfast.torture.streams.target import stream_ground_of

    if report_file is not None:
        require_writable(report_file)
    ground = stream_ground_of(url) if streams else ground_of(url)
    # Nobody else knows a server of the run's own, whose sessions all end when it is restarted.
    with ground.reserved() if server is None else contextlib.nullcontext():
        require_alone(ground, among_others=yes)
        plan = _plan(name, ground.kind, seed=seed, jobs=jobs, streams=streams)
        history = new_history(history_dir, plan.run)
        teller = Teller(as_json=as_json)
        if not as_json:
            _announce(teller, plan, ground, streams=streams)
        report = _reported(plan, ground, server, history=history, as_json=as_json)
        if server is not None and not report.is_clean:
            server.is_kept = True  # before anything is told of it, which may fail
        if report.is_clean and history_dir is None:
            report.history = ""  # it is removed below
        try:
            teller.show(report)
            is_written = report_file is None or write_report(report_file, report)
            _clean(teller, ground, server, report, history, keeps_store=keep, keeps_history=history_dir is not None)
        except KeyboardInterrupt:
            message = f"interrupted while the verdict was told; {_left(ground, server, history)}"
            raise ExitError(message, ExitCode.INTERRUPTED) from None
    return _code_of(report, is_written=is_written)


def _announce(teller: Teller, plan: RunPlan, ground: Target, *, streams: bool) -> None:
    what = ("events", "nodes", "appenders") if streams else ("jobs", "workers", "producers")
    teller.say(
        f"{plan.profile.jobs:,} {what[0]}, {plan.profile.workers} {what[1]}, {plan.profile.producers} {what[2]}, "
        f"{'recovery' if streams else 'lease'} {plan.lease:g} s, profile {plan.name}, seed {plan.seed}"
    )
    teller.say(ground.shown)


def _reported(plan: RunPlan, ground: Target, server: OwnServer | None, *, history: Path, as_json: bool) -> RunReport:
    """Run; an end without a report says what is left, and never has the exit code of a violation."""
    from holdfast.torture.run import no_verdict

    try:
        return _interruptible(plan, ground, server, history=history, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        message = f"interrupted: every process of the run was ended; {_left(ground, server, history)}"
        raise ExitError(message, ExitCode.INTERRUPTED) from None
    except (BrokenPipeError, SystemExit):  # the latter is how rich tells of the former
        message = "nobody reads any more what the command says: read it to the end, or lead it into a file"
        raise RunFailed(f"{message}; {_left(ground, server, history)}") from None
    except Exception as error:
        warn(f"the run came to no verdict; {_left(ground, server, history)}")
        failed = no_verdict(error)
        if failed is error:
            raise
        raise failed from error


def _left(ground: Target, server: OwnServer | None, history: Path) -> str:
    """Say what a run without an end in order has left."""
    told = f"what was written until then is in {history}"
    if server is None:
        return f"{told}, and {ground.shown} is left as it is: the next run on it removes what is of this one"
    return f"{told}, and the data of the server are in {server.data}" if server.is_kept else told


def _plan(name: str, store: str, *, seed: int | None, jobs: int | None, streams: bool) -> RunPlan:
    from holdfast.torture.calibrate import fitting_lease
    from holdfast.torture.plan import RunPlan, profile_of
    from holdfast.torture.streams.profiles import stream_profile_of

    profile = stream_profile_of(name, store) if streams else profile_of(name, store)
    if jobs is not None:
        profile = profile.with_jobs(jobs)
    drawn = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    return RunPlan(name=name, profile=profile, seed=drawn, lease=fitting_lease())


def _work(
    plan: RunPlan, ground: Target, server: OwnServer | None, *, history: Path
) -> tuple[RunProgress, Callable[[], Coroutine[Any, Any, RunReport]]]:
    """Return what is to be run, of jobs or of streams, and what is known of it while it runs."""
    from holdfast.torture.progress import RunProgress
    from holdfast.torture.run import torture as run
    from holdfast.torture.streams.conductor import StreamProgress
    from holdfast.torture.streams.run import torture_streams
    from holdfast.torture.streams.target import is_of_streams

    if is_of_streams(ground):
        seen = StreamProgress(plan, ground.shown)
        return seen, lambda: torture_streams(plan, ground, history=history, progress=seen, server=server)
    progress = RunProgress(plan, ground.shown)
    return progress, lambda: run(plan, ground, history=history, progress=progress, server=server)


def _interruptible(
    plan: RunPlan, ground: Target, server: OwnServer | None, *, history: Path, as_json: bool
) -> RunReport:
    """Run, and show how it goes; Ctrl-C ends everything that was started."""
    from holdfast.cli.torture.view import TortureView

    progress, run = _work(plan, ground, server, history=history)

    async def whole() -> RunReport:
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(run())
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in asking()}

        def end() -> None:
            if not running.cancelling():  # asked again, it would leave behind what it is about to end
                running.cancel()

        for number in before:
            loop.add_signal_handler(number, end)
        try:
            with TortureView(console(stderr=as_json), progress) as view:
                while not running.done():
                    await asyncio.wait({running}, timeout=view.period)
                    view.refresh()
            return running.result()
        finally:
            end()
            await asyncio.wait({running})  # nobody may be able to show it any more, but all of it has to end
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    return asyncio.run(whole())


def _clean(
    teller: Teller,
    ground: Target,
    server: OwnServer | None,
    report: RunReport,
    history: Path,
    *,
    keeps_store: bool,
    keeps_history: bool,
) -> None:
    """Leave nothing behind but what was asked for, or what shows a violation."""
    if not report.is_clean:
        teller.say(f"The store is left as it is, and the history is in {history}.")
    elif not keeps_history:
        shutil.rmtree(history, ignore_errors=True)
    if server is not None and server.is_kept:
        teller.say(f"The server is stopped in order, and its data are left in {server.data}; it is started again by:")
        teller.say(server.how_to_start)
    elif report.is_clean and not keeps_store and server is None:
        _wipe(teller, ground)


def _wipe(teller: Teller, ground: Target) -> None:
    """Remove what is of the run; what cannot be is told, and changes no verdict."""
    from holdfast.torture.run import no_verdict

    try:
        teller.say(ground.wipe())
    except Exception as error:
        told = no_verdict(error)
        if not isinstance(told, HoldfastError):
            raise
        warn(f"what the run has left in {ground.shown} could not be removed: {told}")
