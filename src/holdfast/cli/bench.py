"""`holdfast bench`: run the benchmarks of the source tree on a chosen store.

The benchmarks are not part of the installed package; the command needs a checkout.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import click
import msgspec
from click.core import ParameterSource

import holdfast
from holdfast.cli.exit_errors import ExitError, debug_option, is_debugging, warn
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.logs import configure_logs
from holdfast.cli.table import Cell, Column, console, show_table
from holdfast.errors import ConfigError
from holdfast.reports.text import has_password
from holdfast.runtime.exit_code import ExitCode

_MANY = 100  # larger values are shown without decimals


class BenchFigure(Protocol):
    """A measurement: Holdfast's value, the value it is compared with, and their ratio."""

    name: str
    store: str
    value: float
    unit: str
    raw: float | None
    ratio: float | None


class Peer(Protocol):
    """A library that Holdfast is compared with, or the reason why it was not measured."""

    name: str
    version: str
    reason: str | None


class BenchReport(Protocol):
    """The result of a benchmark run."""

    jobs: int
    machine: Any
    records: list[BenchFigure]
    peers: list[Peer]


class Benchmarks(Protocol):
    """The module `benchmarks.run` of a checkout."""

    Plan: Callable[..., Any]
    UnknownScenarioError: type[Exception]
    UnknownStoreError: type[Exception]
    UnreachableError: type[Exception]
    Wrong: type[Exception]

    def run(self, plan: Any, on_scenario: Callable[[str], None], /) -> BenchReport:
        """Run a plan; `on_scenario` is called with the name of each scenario."""
        ...

    def aim_of(self, record: BenchFigure, server: str, /) -> tuple[str, bool]:
        """Return the target of a figure on a server, and whether it is reached."""
        ...


def checkout() -> Path:
    """Return the root of the source tree that this package runs from; raise `ConfigError` if there is none."""
    package = Path(holdfast.__file__).resolve().parent
    root = package.parents[1]
    if package != root / "src" / "holdfast" or not (root / "benchmarks" / "run.py").is_file():
        message = (
            f"{package} has no benchmarks: they are part of a checkout, not of an installed package\n"
            "Clone the repository, run `make setup` in it, and use its .venv/bin/holdfast."
        )
        raise ConfigError(message)
    return root


def _benchmarks() -> Benchmarks:
    root = str(checkout())
    if root not in sys.path:
        sys.path.append(root)
    try:
        return cast("Benchmarks", importlib.import_module("benchmarks.run"))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "benchmarks":
            raise
        message = f"the benchmarks need {error.name}, which is not installed: `make setup` in {root} installs it"
        raise ConfigError(message) from error


@click.command(short_help="Measure a store, compared with hand-written loops.")
@click.option(
    "--url",
    envvar="HOLDFAST_URL",
    help="The URL of the store; or $HOLDFAST_URL. Its data is not touched.  [default: SQLite, in a temporary file]",
)
@click.option(
    "--events",
    envvar="HOLDFAST_EVENTS_URL",
    metavar="URL",
    help="Kafka, for the scenarios kafka.*; or $HOLDFAST_EVENTS_URL. They need --url postgresql://…",
)
@click.option(
    "--jobs",
    type=click.IntRange(100),
    metavar="N",
    default=100_000,
    show_default=True,
    help="The number of jobs per measurement.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only scenarios with this prefix; may be repeated.")
@click.option(
    "--repeats",
    type=click.IntRange(1),
    metavar="N",
    default=3,
    show_default=True,
    help="Runs per scenario; the median is reported.",
)
@click.option("--peers", is_flag=True, help="Install other libraries into a temporary directory and measure them too.")
@json_option
@debug_option
def bench(
    *,
    url: str | None,
    events: str | None,
    jobs: int,
    only: tuple[str, ...],
    repeats: int,
    peers: bool,
    as_json: bool,
) -> None:
    """Measure Holdfast on a store, compared with hand-written loops that use only the driver.

    Creates separate databases or schemas next to the one that the URL names, and removes them. Needs a checkout.
    """
    configure_logs(logging.INFO if is_debugging() else logging.ERROR)
    if url and has_password(url) and _is_typed("url"):
        warn("all users of this machine can read the password on the command line: set $HOLDFAST_URL instead")
    benchmarks = _benchmarks()
    report = _run(benchmarks, benchmarks.Plan(url or None, jobs, repeats, only, peers, events or None))
    if as_json:
        show_json(msgspec.to_builtins(report))
    else:
        _show(benchmarks, report)
    for peer in report.peers:
        if peer.reason is not None:
            warn(f"{peer.name} was not measured: {peer.reason}")


def _is_typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _run(benchmarks: Benchmarks, plan: Any) -> BenchReport:
    err = console(stderr=True)
    try:
        with err.status("") as status:
            return benchmarks.run(plan, lambda name: status.update(f"{name} …"))
    except benchmarks.UnknownScenarioError as error:
        raise click.UsageError(str(error)) from None
    except benchmarks.UnknownStoreError as error:
        raise ConfigError(str(error)) from None
    except benchmarks.UnreachableError as error:
        raise ExitError(str(error), ExitCode.UNAVAILABLE) from None
    except benchmarks.Wrong as error:
        raise ExitError(f"the measurements are invalid: {error}") from None


_COLUMNS = (
    Column("name"),
    Column("store"),
    Column("value", right=True),
    Column("unit"),
    Column("raw", right=True),
    Column("ratio", right=True),
)


def _show(benchmarks: Benchmarks, report: BenchReport) -> None:
    if not console().is_terminal:
        show_table(_COLUMNS, [_exact(record) for record in report.records])
        return
    machine = report.machine
    rows = [_readable(benchmarks, record, machine.store) for record in report.records]
    show_table((*_COLUMNS, Column("aim")), rows)
    click.echo(
        f"\n{report.jobs:,} jobs; {machine.store}, {machine.driver}; {machine.python}, {machine.kernel}, "
        f"{machine.cores} cores, {machine.cpu}; a sync takes {machine.sync_us:g} µs; load {machine.load:g}"
    )
    measured = ", ".join(f"{peer.name} {peer.version}" for peer in report.peers if peer.reason is None)
    if measured:
        click.echo(f"Compared with {measured}.")


def _exact(record: BenchFigure) -> Sequence[Cell]:
    return (
        record.name,
        record.store,
        _rounded(record.value),
        record.unit,
        _rounded(record.raw),
        _rounded(record.ratio),
    )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


def _readable(benchmarks: Benchmarks, record: BenchFigure, server: str) -> Sequence[Cell]:
    aim, is_met = benchmarks.aim_of(record, server)
    return (
        record.name,
        record.store,
        _figure(record.value),
        record.unit,
        _figure(record.raw),
        None if record.ratio is None else f"{record.ratio:.2f}",
        aim if is_met else f"{aim}: missed",
    )


def _figure(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.0f}" if abs(value) >= _MANY else f"{value:.2f}"
