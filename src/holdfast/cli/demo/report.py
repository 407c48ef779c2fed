"""The verdict as people and programs read it."""

from __future__ import annotations

import click

from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.verdict import DemoTotals, DemoVerdict, histogram, judge
from holdfast.cli.table import Column, console, show_beside
from holdfast.cli.text import line

_COLUMNS = (
    Column("what"),
    Column("found", right=True),
    Column("expected", right=True),
    Column("verdict", coloured=True),
)
_TRIES = (Column("tries", right=True), Column("works", right=True), Column("expected", right=True))


def show_verdict(run: DemoRun, tally: DemoTotals) -> DemoVerdict:
    """Print the verdict and return it."""
    verdict = judge(run.plan, tally)
    lines = [(each.what, each.found, each.expected, each.word) for each in verdict.lines]
    rows = [(tries, f"{works:,}", _expected(expected)) for tries, works, expected in histogram(run.plan, tally)]
    show_beside((_COLUMNS, lines), (_TRIES, rows))
    click.echo()
    if verdict.is_good:
        _say(verdict.summary, "green bold")
    for problem in verdict.unfinished:
        _say(f"Unfinished: {problem}; `holdfast demo` goes on with them.", "yellow")
    for problem in verdict.problems:
        _say(f"Bad: {problem}", "red bold")
    return verdict


def _expected(works: float) -> str:
    return f"{works:,.0f}" if works >= 10 or works < 0.05 else f"{works:.1f}"  # noqa: PLR2004 - a digit of it says more


def _say(text: str, style: str) -> None:
    """Print a sentence: as wide as the terminal, but whole in a pipe."""
    out = console()
    out.print(line(text), style=style, soft_wrap=not out.is_terminal)
