"""Tables on a terminal, and the same rows as tab-separated lines in a pipe.

If a table is too wide for the terminal, each row is folded into several lines. Cells are data: markup in them is not
interpreted, and control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TextIO

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.text import block, line
from holdfast.cli.times import iso, relative, span

Shown = tuple[Sequence["Column"], Sequence[Sequence["Cell"]]]
Cell = str | int | float | bool | datetime | timedelta | None
_GAP = 3
_NOTHING = "\N{EN DASH}"
_NARROWEST = 24  # a last column narrower than this is hard to read

STYLES = {
    "running": "yellow",
    "ready": "cyan",
    "scheduled": "blue",
    "blocked": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "paused": "yellow",
    "silent": "red",
    "expired": "red",
    "ok": "green",
    "warn": "yellow",
    "bad": "red bold",
    "fits": "green",
    "off": "yellow",
}


class Column(NamedTuple):
    """A column: its heading, whether its words are coloured, and whether it is right-aligned."""

    name: str
    coloured: bool = False
    right: bool = False


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text literally, without markup."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def is_live_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a line can be replaced; `FORCE_COLOR` does not make it one."""
    return stream.isatty() and not console().is_dumb_terminal


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under headings, within the width of the terminal."""
    out = console()
    if not out.is_terminal:
        click.echo("\t".join(column.name for column in columns))
        for row in rows:
            click.echo("\t".join(map(piped, row)))
        return
    columns, texts = _without_empty(columns, [[displayed(cell) for cell in row] for row in rows])
    widths = [
        max([cell_len(column.name), *(cell_len(row[index]) for row in texts)]) for index, column in enumerate(columns)
    ]
    fixed = sum(widths[:-1]) + _GAP * (len(widths) - 1)
    if out.width - fixed >= min(widths[-1], _NARROWEST):
        out.print(_table(columns, texts))
    else:
        _show_folded(out, columns, texts, widths)


def show_beside(left: Shown, right: Shown) -> None:
    """Print two tables side by side if the terminal is wide enough, otherwise one below the other."""
    out = console()
    tables = [_table(columns, [[displayed(cell) for cell in row] for row in rows]) for columns, rows in (left, right)]
    width = sum(Measurement.get(out, out.options, table).maximum for table in tables) + _GAP
    if not out.is_terminal or width > out.width:
        show_table(*left)
        click.echo()
        show_table(*right)
        return
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_row(*tables)
    out.print(grid)


def _without_empty(columns: Sequence[Column], rows: list[list[str]]) -> tuple[Sequence[Column], list[list[str]]]:
    """Remove the columns that are empty in every row."""
    kept = [index for index in range(len(columns)) if any(row[index] != _NOTHING for row in rows)]
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1))
    for index, column in enumerate(columns):
        is_last = index == len(columns) - 1
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=not is_last, overflow="fold")
    for row in rows:
        table.add_row(*(_text(cell, column) for cell, column in zip(row, columns, strict=True)))
    return table


def _show_folded(out: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print each row as one line with the columns that fit, and the others below it with their names."""
    fitting, used = 1, widths[0]
    while fitting < len(columns) and used + _GAP + widths[fitting] <= out.width:
        used += _GAP + widths[fitting]
        fitting += 1
    for number, row in enumerate([[column.name for column in columns], *rows]):
        head = Text(style="" if number else "bold")
        for index in range(fitting):
            space = " " * (widths[index] - cell_len(row[index]))
            head.append(" " * _GAP if index else "")
            head.append(space if columns[index].right else "")
            head.append(_text(row[index], columns[index]))
            head.append("" if columns[index].right or index == fitting - 1 else space)
        out.print(head, overflow="fold")
        if not number:
            out.print("─" * min(used, out.width))
            continue
        rest = Text()
        for index in range(fitting, len(columns)):
            if row[index] != _NOTHING:
                rest.append(", " if rest else "")
                if fitting < len(columns) - 1:  # a single column needs no name
                    rest.append(f"{columns[index].name} ", style="dim")
                rest.append(_text(row[index], columns[index]))
        if rest:
            out.print(Padding(rest, (0, 0, 0, 4)), overflow="fold")


def show_fields(fields: Sequence[tuple[Column | str, Cell]], *, out: Console | None = None) -> None:
    """Print names and values, one pair per line."""
    out = out or console()
    pairs = [(name if isinstance(name, Column) else Column(name), value) for name, value in fields]
    if not out.is_terminal:
        for column, value in pairs:
            click.echo(f"{column.name}\t{piped(value)}")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for column, value in pairs:
        grid.add_row(column.name, _text(displayed(value), column))
    out.print(grid)


def show_block(text: str, *, indent: str = "    ") -> None:
    """Print several lines of text, indented and without wrapping."""
    for part in block(text.rstrip("\n")).split("\n"):
        click.echo(indent + part)


def _text(cell: str, column: Column) -> Text:
    return Text(cell, style=STYLES.get(cell.split(" ", 1)[0], "") if column.coloured else "")


def displayed(cell: Cell) -> str:
    """Return a cell for a terminal: relative times, durations with units."""
    if cell is None or cell == "":
        return _NOTHING
    if isinstance(cell, datetime):
        return relative(cell)
    if isinstance(cell, timedelta):
        return span(cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return line(str(cell))


def piped(cell: Cell) -> str:
    """Return a cell for a program: instants in ISO 8601, durations in seconds."""
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return iso(cell)
    if isinstance(cell, timedelta):
        return f"{cell.total_seconds():.3f}"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return line(str(cell))
