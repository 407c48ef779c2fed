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
    out = console()
    if verdict.is_good:
        out.print(verdict.summary, style="green bold", soft_wrap=True)
    for problem in verdict.unfinished:
        out.print(line(f"Unfinished: {problem}; `holdfast demo` goes on with them."), style="yellow", soft_wrap=True)
    for problem in verdict.problems:
        out.print(line(f"Bad: {problem}"), style="red bold", soft_wrap=True)
    return verdict
