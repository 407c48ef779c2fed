"""The report as a person reads it."""

from __future__ import annotations

import click

from holdfast.cli.table import Column, console, show_table
from holdfast.cli.text import block, line, mask
from holdfast.torture.checker.verdict import InvariantResult
from holdfast.torture.report import RunReport

_FAULTS = (Column("fault"), Column("done", right=True), Column("wanted", right=True), Column("what"))
_INVARIANTS = (
    Column("invariant"),
    Column("name"),
    Column("judged", right=True),
    Column("violated", right=True),
    Column("verdict", coloured=True),
    Column("forbids"),
)


def show_report(report: RunReport) -> None:
    """Print the report; the verdict comes last, where the eye ends."""
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
    """An empty search has found nothing, and shows nothing."""
    if tally.violated:
        return "bad"
    return "ok" if tally.checked else "not judged"


def _show_figures(report: RunReport) -> None:
    states = ", ".join(f"{count:,} {state}" for state, count in report.states.items())
    recovered, faults, drained = report.recoveries, report.seconds["faults"], report.seconds["drain"]
    lost = ", ".join(f"{count:,} {name}" for name, count in report.attempts_without_completion.items()) or "none"
    lines = [
        f"{report.jobs:,} {report.unit}: {states}; {report.effects:,} effects in the store",
        f"{report.jobs_per_second:,.0f} {report.unit}/s; faults for {faults:.0f} s, drained in {drained:.0f} s",
        f"{report.workers_started} workers started, {report.workers_died} of them died",
    ]
    if report.unit == "jobs":
        lines.append(f"attempts without completion: {lost}; most attempts of a job: {report.most_attempts}")
    what, taken = ("jobs", "claimed") if report.unit == "jobs" else ("shares", "owned")
    if recovered.get("count"):
        lines.append(
            f"{recovered['count']:,.0f} {what} of killed workers were {taken} again after {recovered['median']:.1f} s "
            f"(median), {recovered['most']:.1f} s (most)"
        )
    if report.latency:
        lines.append(
            "enqueued to completed, at the first attempt: "
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
    for text in (report.shows, *report.cannot, f"By that rule, had nothing gone wrong: {bounds}."):
        _say(text, "dim")


def _show_verdict(report: RunReport) -> None:
    for violation in report.violations:
        _say(f"VIOLATED {violation}", "red bold")
    if report.verdict is not None and report.verdict.timeline:
        click.echo(block(mask(report.verdict.timeline)))
    run = f"Seed {report.seed}, profile {report.profile}."
    if report.is_clean and report.reached:
        _say(f"Nothing was lost and nothing was doubled. {run}", "green bold")
        return
    if not report.reached:
        _say(f"The profile's counts were not reached: {unreached(report)}.", "yellow")
    if report.is_clean:
        _say(
            "Clean, but not all that was planned could be done: nothing was lost and nothing was doubled, and yet this "
            f"shows less than it was to. {run}",
            "yellow bold",
        )
    else:
        _say(f"The run is bad. {run}", "red bold")


def unreached(report: RunReport) -> str:
    """Say which counts of the profile a run has not reached."""
    short = [
        f"{name} {fault.done} of {fault.wanted}" for name, fault in report.faults.items() if fault.done < fault.wanted
    ]
    return "; ".join(short) or f"{report.jobs:,} {report.unit} alone were produced"


def _say(text: str, style: str) -> None:
    out = console()
    out.print(line(text), style=style, soft_wrap=not out.is_terminal)
