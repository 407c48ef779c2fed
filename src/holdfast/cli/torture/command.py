"""The command `holdfast torture`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from holdfast.cli.exit_errors import ExitError, debug_option, is_debugging, warn
from holdfast.cli.json_output import json_option
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import console
from holdfast.cli.torture.output import VerdictOutput, require_writable, write_report
from holdfast.cli.torture.signals import terminating, unwound_by_signals
from holdfast.errors import HoldfastError
from holdfast.reports.text import has_password
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.testing.kafka_server import KafkaServer
    from holdfast.torture.plan import RunPlan
    from holdfast.torture.progress import RunProgress
    from holdfast.torture.report import RunReport
    from holdfast.torture.server import RunServer
    from holdfast.torture.target import Target

URL: Final = "sqlite:///holdfast-torture.db"
_NAMES: Final = ("smoke", "standard", "release")


@click.command(short_help="Kill and freeze real workers on your database, and check the outcome.")
@click.option("--url", help=f"The URL of the store.  [default: {URL}; $HOLDFAST_URL is ignored]")
@click.option(
    "--server",
    type=click.Choice(["postgresql", "mariadb", "mysql", "redis"]),
    help="Start a temporary server (redis: Valkey or Redis) from binaries on this machine, and include restarts among "
    "the faults.  mariadb and mysql are downloaded if need be, without root.",
)
@click.option(
    "--profile",
    "name",
    type=click.Choice(_NAMES),
    default="smoke",
    show_default=True,
    help="The length of the run: seconds, minutes, or half an hour.",
)
@click.option("--streams", is_flag=True, help="Torture streams, consumers and their allocation instead of jobs.")
@click.option(
    "--events",
    metavar="URL|kafka",
    help="With --streams: keep the events in Kafka, at this URL, or in a temporary broker (kafka), which is killed.",
)
@click.option("--seed", type=click.IntRange(0), help="Repeat the jobs and the faults of an earlier run.")
@click.option(
    "--jobs", type=click.IntRange(100), help="The minimum number of jobs or events.  [default: the profile's]"
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the report as JSON to this file, whatever the verdict.",
)
@click.option(
    "--history",
    "history_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the recorded history in this new directory; by default it is kept only after violations.",
)
@click.option("--keep", is_flag=True, help="Leave the jobs and the effects in the store.")
@json_option
@debug_option
@click.pass_context
def torture(ctx: click.Context, /, *, url: str | None, server: str | None, events: str | None, **more: Any) -> None:
    """Kill, freeze and disconnect real workers on your own database, and check that nothing was lost or doubled.

    A run creates its own SQLite file, its own schema in a PostgreSQL database, its own MySQL database, or its own store
    on a Redis server, and drops it at the end. One that exists already is refused, unless an earlier run left it
    behind. A server given by --url is never restarted.

    Exits with code 1 on any violation, with the full history of the first affected job, and with code 4 if the run has
    no verdict or did less than planned.
    """
    if url is not None and server is not None:
        raise ExitError("--url names a running server and --server starts one: give only one of them", ExitCode.USAGE)
    if url is not None and has_password(url):
        warn(
            "the URL on the command line contains a password, which all users of this machine can read in the "
            "process list"
        )
    if events is not None and not more["streams"]:
        raise ExitError("--events keeps the events of streams in Kafka: add --streams", ExitCode.USAGE)
    os.environ.pop("HOLDFAST_EVENTS_URL", None)  # as $HOLDFAST_URL: a run touches only what its options name
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)
    with unwound_by_signals() as unwinding, contextlib.ExitStack() as stack:
        try:
            own = _started(stack, server, keeps=more["keep"]) if server is not None else None
            broker = _started_broker(stack) if events == "kafka" else None
            chosen = own.url if own is not None else url or URL
            code = _run(chosen, own, broker, events=events if broker is None else broker.url, **more)
        finally:
            unwinding.has_begun = True  # further signals must not interrupt the cleanup of the stack
    ctx.exit(code)


class _TortureRun(NamedTuple):
    """One run: its plan, the servers that are stopped with it, and how it is shown."""

    plan: RunPlan
    target: Target
    server: RunServer | None
    broker: KafkaServer | None
    history: Path
    as_json: bool
    streams: bool


def _started(stack: contextlib.ExitStack, kind: str, *, keeps: bool) -> RunServer:
    from holdfast.torture.run import own_server

    try:
        return stack.enter_context(own_server(kind, keeps=keeps))
    except OSError as error:  # for example, a full disk
        raise RunFailed(f"the server could not be started: {error}") from error


def _started_broker(stack: contextlib.ExitStack) -> KafkaServer:
    from holdfast.torture.run import own_broker

    try:
        return stack.enter_context(own_broker())
    except OSError as error:
        raise RunFailed(f"the broker could not be started: {error}") from error


def _code_of(report: RunReport, *, is_written: bool) -> ExitCode:
    """Return the exit code: a violation takes precedence, and a run that did less than planned is not a success."""
    if not report.is_clean:
        return ExitCode.WRONG
    return ExitCode.FINE if report.reached and is_written else ExitCode.UNDECIDED


def _run(  # noqa: PLR0913 - the options of the command, by name
    url: str,
    server: RunServer | None,
    broker: KafkaServer | None,
    *,
    events: str | None,
    name: str,
    seed: int | None,
    jobs: int | None,
    report_file: Path | None,
    history_dir: Path | None,
    keep: bool,
    as_json: bool,
    streams: bool,
) -> ExitCode:
    from holdfast.torture.run import new_history, target_of
    from holdfast.torture.target.kafka_events import events_of

    if report_file is not None:
        require_writable(report_file)
    target = target_of(url)
    if events is not None:
        target.keep_events_in(events_of(events))
    # A temporary server needs no reservation: it is private, and a restart would end the session that holds one.
    with target.reserved() if server is None else contextlib.nullcontext():
        target.require_own()
        plan = _plan(name, target, broker, seed=seed, jobs=jobs, streams=streams)
        history = new_history(history_dir, plan.run)
        output = VerdictOutput(as_json=as_json)
        if not as_json:
            _announce(output, plan, target, streams=streams)
        run = _TortureRun(plan, target, server, broker, history, as_json=as_json, streams=streams)
        report = _reported(run)
        if server is not None and not report.is_clean:
            server.is_kept = True  # before the output, which may fail
        if report.is_clean and history_dir is None:
            report.history = ""  # it is removed below
        try:
            output.show(report)
            is_written = report_file is None or write_report(report_file, report)
            _clean(output, run, report, keeps_store=keep, keeps_history=history_dir is not None)
        except KeyboardInterrupt:
            message = f"interrupted while printing the verdict; {_left(run)}"
            raise ExitError(message, ExitCode.INTERRUPTED) from None
    return _code_of(report, is_written=is_written)


def _announce(output: VerdictOutput, plan: RunPlan, target: Target, *, streams: bool) -> None:
    what = ("events", "nodes", "appenders") if streams else ("jobs", "workers", "producers")
    output.print_line(
        f"{plan.profile.jobs:,} {what[0]}, {plan.profile.workers} {what[1]}, {plan.profile.producers} {what[2]}, "
        f"{'recovery' if streams else 'lease'} {plan.lease:g} s, profile {plan.name}, seed {plan.seed}"
    )
    output.print_line(target.shown)


def _reported(run: _TortureRun) -> RunReport:
    """Run; if there is no report, say what is left behind, and never use the exit code of a violation."""
    from holdfast.torture.run import no_verdict

    try:
        return _interruptible(run)
    except (KeyboardInterrupt, asyncio.CancelledError):
        message = f"interrupted: all processes of the run were stopped; {_left(run)}"
        raise ExitError(message, ExitCode.INTERRUPTED) from None
    except (BrokenPipeError, SystemExit):  # rich turns the former into the latter
        message = "stdout was closed: read the output to the end, or redirect it to a file"
        raise RunFailed(f"{message}; {_left(run)}") from None
    except Exception as error:
        warn(f"the run has no verdict; {_left(run)}")
        failed = no_verdict(error)
        if failed is error:
            raise
        raise failed from error


def _left(run: _TortureRun) -> str:
    """Return what an aborted run leaves behind."""
    recorded = f"the history until then is in {run.history}"
    if run.server is None:
        return f"{recorded}, and {run.target.shown} is left as it is: the next run there drops it"
    return f"{recorded}, and the server's data is in {run.server.data}" if run.server.is_kept else recorded


def _plan(
    name: str, target: Target, broker: KafkaServer | None, *, seed: int | None, jobs: int | None, streams: bool
) -> RunPlan:
    from holdfast.torture.calibrate import fitting_lease
    from holdfast.torture.plan import RunPlan, profile_of
    from holdfast.torture.streams.profiles import BROKER_FAULTS, stream_profile_of

    find = stream_profile_of if streams else profile_of
    profile = find(name, one_writer=target.one_writer)
    if jobs is not None:
        profile = profile.with_jobs(jobs)
    if broker is not None:
        profile = profile.with_more(BROKER_FAULTS[name])
    drawn = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    return RunPlan(name=name, profile=profile, seed=drawn, lease=fitting_lease())


def _work(run: _TortureRun) -> tuple[RunProgress, Callable[[], Coroutine[Any, Any, RunReport]]]:
    """Return the run, of jobs or of streams, and its progress."""
    from holdfast.torture.progress import RunProgress
    from holdfast.torture.run import torture as torture_jobs
    from holdfast.torture.streams.conductor import StreamProgress
    from holdfast.torture.streams.run import torture_streams

    plan, target, server, broker, history = run[:5]
    if run.streams:
        seen = StreamProgress(plan, target.shown)
        return seen, lambda: torture_streams(plan, target, history=history, progress=seen, server=server, broker=broker)
    progress = RunProgress(plan, target.shown)
    return progress, lambda: torture_jobs(plan, target, history=history, progress=progress, server=server)


def _interruptible(run: _TortureRun) -> RunReport:
    """Run and display the progress; Ctrl-C stops everything that was started."""
    from holdfast.cli.torture.view import TortureView

    progress, work = _work(run)

    async def whole() -> RunReport:
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(work())
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in terminating()}

        def end() -> None:
            if not running.cancelling():  # a second cancellation would interrupt its cleanup
                running.cancel()

        for number in before:
            loop.add_signal_handler(number, end)
        try:
            with TortureView(console(stderr=run.as_json), progress) as view:
                while not running.done():
                    await asyncio.wait({running}, timeout=view.period)
                    view.refresh()
            return running.result()
        finally:
            end()
            await asyncio.wait({running})  # even if the display failed, the run has to stop completely
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    return asyncio.run(whole())


def _clean(
    output: VerdictOutput, run: _TortureRun, report: RunReport, *, keeps_store: bool, keeps_history: bool
) -> None:
    """Remove everything except what the options keep and the evidence of a violation."""
    server = run.server
    if not report.is_clean:
        output.print_line(f"The store is left as it is, and the history is in {run.history}.")
    elif not keeps_history:
        shutil.rmtree(run.history, ignore_errors=True)
    if server is not None and server.is_kept:
        output.print_line(f"The server is stopped, and its data is kept in {server.data}; start it again with:")
        output.print_line(server.how_to_start)
    elif report.is_clean and not keeps_store and server is None:
        _drop(output, run.target)


def _drop(output: VerdictOutput, target: Target) -> None:
    """Drop the target; a failure is printed, and changes no verdict."""
    from holdfast.torture.run import no_verdict

    try:
        output.print_line(target.drop())
    except Exception as error:
        known = no_verdict(error)
        if not isinstance(known, HoldfastError):
            raise
        warn(f"{target.shown} could not be dropped: {known}")
