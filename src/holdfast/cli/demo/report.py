"""The verdict as people and programs read it."""

from __future__ import annotations

import click

from holdfast.cli.demo.plan import Run
from holdfast.cli.demo.verdict import Tally, Verdict, histogram, judge
from holdfast.cli.table import Column, console, show_table
from holdfast.cli.text import line

_COLUMNS = (
    Column("what"),
    Column("found", right=True),
    Column("expected", right=True),
    Column("verdict", coloured=True),
)
_TRIES = (Column("tries"), Column("works", right=True), Column("expected", right=True))


def show_verdict(run: Run, tally: Tally) -> Verdict:
    """Print the verdict and return it."""
    verdict = judge(run.plan, tally)
    show_table(_COLUMNS, [(each.what, each.found, each.expected, each.word) for each in verdict.lines])
    click.echo()
    rows = [(tries, f"{works:,}", f"{expected:,.1f}") for tries, works, expected in histogram(run.plan, tally)]
    show_table(_TRIES, rows)
    click.echo()
    if verdict.is_good:
        _say(verdict.summary, "green bold")
    for problem in verdict.unfinished:
        _say(f"Unfinished: {problem}; `holdfast demo` goes on with them.", "yellow")
    for problem in verdict.problems:
        _say(f"Bad: {problem}", "red bold")
    return verdict


def _say(text: str, style: str) -> None:
    """Print a sentence: as wide as the terminal, but whole in a pipe."""
    out = console()
    out.print(line(text), style=style, soft_wrap=not out.is_terminal)
