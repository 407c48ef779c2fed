"""Print the verdict."""

from __future__ import annotations

import click

from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.verdict import DemoTotals, DemoVerdict, histogram, judge
from holdfast.cli.table import Column, console, show_beside
from holdfast.reports.text import line

_COLUMNS = (
    Column("what"),
    Column("found", right=True),
    Column("expected", right=True),
    Column("verdict", coloured=True),
)
_ATTEMPTS = (Column("attempts", right=True), Column("jobs", right=True), Column("expected", right=True))


def show_verdict(run: DemoRun, tally: DemoTotals) -> DemoVerdict:
    """Print the verdict and return it."""
    verdict = judge(run.plan, tally)
    lines = [(each.what, each.found, each.expected, each.word) for each in verdict.lines]
    rows = [
        (used_attempts, f"{jobs:,}", _expected(expected))
        for used_attempts, jobs, expected in histogram(run.plan, tally)
    ]
    show_beside((_COLUMNS, lines), (_ATTEMPTS, rows))
    click.echo()
    if verdict.is_good:
        _print(verdict.summary, "green bold")
    for problem in verdict.unfinished:
        _print(f"Unfinished: {problem}; `holdfast demo` continues the run.", "yellow")
    for problem in verdict.problems:
        _print(f"Bad: {problem}", "red bold")
    return verdict


def _expected(jobs: float) -> str:
    return f"{jobs:,.0f}" if jobs >= 10 or jobs < 0.05 else f"{jobs:.1f}"  # noqa: PLR2004 - a digit of it says more


def _print(text: str, style: str) -> None:
    """Print a sentence: wrapped on a terminal, on one line in a pipe."""
    out = console()
    out.print(line(text), style=style, soft_wrap=not out.is_terminal)
