"""The report as text."""

from __future__ import annotations

import click

from holdfast.cli.table import Column, console, show_table
from holdfast.reports.text import block, line, mask
from holdfast.torture.checker.verdict import InvariantResult
from holdfast.torture.report import RunReport

_FAULTS = (Column("fault"), Column("done", right=True), Column("wanted", right=True), Column("what"))
_INVARIANTS = (
    Column("invariant"),
    Column("name"),
    Column("checked", right=True),
    Column("violated", right=True),
    Column("verdict", coloured=True),
    Column("forbids"),
)


def show_report(report: RunReport) -> None:
    """Print the report, with the verdict at the end."""
    click.echo()
    _show_figures(report)
    click.echo()
    rows = [(name, fault.done, fault.wanted, fault.refused or fault.meaning) for name, fault in report.faults.items()]
    show_table(_FAULTS, rows)
    if report.verdict is not None:
        click.echo()
        show_table(
            _INVARIANTS,
            [
                (tally.invariant, tally.name, f"{tally.checked:,}", tally.violated, _mark(tally), tally.forbids)
                for tally in report.verdict.tallies
            ],
        )
    click.echo()
    _show_limits(report)
    click.echo()
    _show_verdict(report)


def _mark(tally: InvariantResult) -> str:
    """Return the verdict on one invariant; without a single check there is none."""
    if tally.violated:
        return "bad"
    return "ok" if tally.checked else "not checked"


def _show_figures(report: RunReport) -> None:
    states = ", ".join(f"{count:,} {state}" for state, count in report.states.items())
    recovered, faults, drained = report.recoveries, report.seconds["faults"], report.seconds["drain"]
    lost = ", ".join(f"{count:,} {name}" for name, count in report.attempts_without_completion.items()) or "none"
    lines = [
        f"{report.jobs:,} {report.unit}: {states}; {report.effects:,} effects in the store",
        f"{report.jobs_per_second:,.0f} {report.unit}/s; faults for {faults:.0f} s, drained in {drained:.0f} s",
        f"{report.workers_started} workers started, {report.workers_died} died",
    ]
    if report.unit == "jobs":
        lines.append(f"attempts without completion: {lost}; most attempts of one job: {report.most_attempts}")
    what, taken = ("jobs", "claimed") if report.unit == "jobs" else ("shares", "owned")
    if recovered.get("count"):
        lines.append(
            f"{recovered['count']:,.0f} {what} of killed workers were {taken} again after {recovered['median']:.1f} s "
            f"(median), {recovered['most']:.1f} s (maximum)"
        )
    if report.latency:
        lines.append(
            "from enqueue to completion, on the first attempt: "
            + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in report.latency.items())
        )
    if report.links_cut:
        lines.append(
            f"{report.links_cut:,} connections cut, {report.cuts_inside_commit:,} of them inside COMMIT, "
            f"{report.cuts_at_statements:,} at statements that commit by themselves"
        )
    lines.append("; ".join(f"{name} {text}" for name, text in (*report.versions.items(), *report.machine.items())))
    for text in lines:
        click.echo(line(text))


def _show_limits(report: RunReport) -> None:
    bounds = "; ".join(f"{name} below about {rate:.2g}" for name, rate in report.bounds.items())
    for text in (report.shows, *report.cannot, f"Rates that a clean run bounds by that rule: {bounds}."):
        _print(text, "dim")


def _show_verdict(report: RunReport) -> None:
    for violation in report.violations:
        _print(f"VIOLATED {violation}", "red bold")
    if report.verdict is not None and report.verdict.timeline:
        click.echo(block(mask(report.verdict.timeline)))
    run = f"Seed {report.seed}, profile {report.profile}."
    if report.is_clean and report.reached:
        _print(f"Nothing was lost and nothing was doubled. {run}", "green bold")
        return
    if not report.reached:
        _print(f"The counts of the profile were not reached: {unreached(report)}.", "yellow")
    if report.is_clean:
        _print(
            "Clean, but the run did less than planned: nothing was lost and nothing was doubled, but this is weaker "
            f"evidence than intended. {run}",
            "yellow bold",
        )
    else:
        _print(f"The run found violations. {run}", "red bold")


def unreached(report: RunReport) -> str:
    """Return which counts of the profile a run has not reached."""
    short = [
        f"{name} {fault.done} of {fault.wanted}" for name, fault in report.faults.items() if fault.done < fault.wanted
    ]
    return "; ".join(short) or f"only {report.jobs:,} {report.unit} were produced"


def _print(text: str, style: str) -> None:
    out = console()
    out.print(line(text), style=style, soft_wrap=not out.is_terminal)
