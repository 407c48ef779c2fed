"""Tables on a terminal, and the same rows as tab-separated lines in a pipe.

A table fits 80 columns: ids have a short form, optional columns are left out if there is no room for them, and long
texts are shortened with an ellipsis. On a terminal that is narrower still, each row is folded into several lines. Cells
are data: markup in them is not interpreted, and control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TextIO

import click
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.reports.text import block, line
from holdfast.reports.times import iso, relative, span

WIDE = 110
"""Columns of a terminal from which on ids are shown in full."""

_GAP = 2
_NOTHING = "\N{EN DASH}"
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_NARROWEST = 24  # a last column narrower than this is hard to read
_SHORTEST = 8  # no text is shortened below this
_COMFORTABLE = 24  # an optional column is left out rather than shortening a text below this

STYLES = {
    "running": "yellow",
    "ready": "cyan",
    "scheduled": "blue",
    "blocked": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "retried": "yellow",
    "snoozed": "blue",
    "released": "dim",
    "rescued": "red",
    "open": "green",
    "paused": "yellow",
    "live": "green",
    "draining": "yellow",
    "silent": "red",
    "waiting": "yellow",
    "granted": "green",
    "revoking": "yellow",
    "free": "dim",
    "expired": "red",
    "ok": "green",
    "warn": "yellow",
    "bad": "red bold",
    "fits": "green",
    "off": "yellow",
    "active": "green",
    "overdue": "red",
    "undeclared": "dim",
}


class Column(NamedTuple):
    """A column: its heading, whether its words are coloured, and whether it is right-aligned.

    `optional`: left out if there is no room for it, the last one first. `shrinks`: a text too long for the terminal is
    shortened at its end; with `keeps_end` in the middle. `hides_zero`: left out if it is 0 in every row.
    """

    name: str
    coloured: bool = False
    right: bool = False
    optional: bool = False
    shrinks: bool = False
    keeps_end: bool = False
    hides_zero: bool = False


class Id(NamedTuple):
    """An id with its short form: every command accepts both."""

    short: str
    full: str


Cell = str | int | float | bool | datetime | timedelta | Id | None
Shown = tuple[Sequence[Column], Sequence[Sequence[Cell]]]


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
    out.print(rendered(columns, rows, out.width))


def rendered(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> RenderableType:
    """Return a table for a terminal of this width."""
    columns, texts = fitted(columns, rows, width)
    widths = _widths(columns, texts)
    fixed = sum(widths[:-1]) + _GAP * (len(widths) - 1)
    if width - fixed >= min(widths[-1], _NARROWEST):
        return table_of(columns, texts)
    return _folded(columns, texts, widths, width)


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> tuple[Sequence[Column], list[list[str]]]:
    """Return the columns and the texts of a table that is to fit a terminal of this width.

    Columns that are empty in every row are left out. The longest texts that may shrink are shortened first.
    """
    texts = [[displayed(cell, is_wide=width >= WIDE) for cell in row] for row in rows]
    empty = [{_NOTHING, "0"} if column.hides_zero else {_NOTHING} for column in columns]
    kept = [index for index in range(len(columns)) if any(row[index] not in empty[index] for row in texts)]
    widths = _widths(columns, texts)
    while sum(_least(columns[index], widths[index]) + _GAP for index in kept) - _GAP > width:
        optional = [index for index in kept if columns[index].optional]
        if not optional:
            break
        kept.remove(optional[-1])
    chosen = [columns[index] for index in kept]
    texts = [[row[index] for index in kept] for row in texts]
    widths = [widths[index] for index in kept]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        able = [
            index
            for index, column in enumerate(chosen)
            if column.shrinks and widths[index] > max(_SHORTEST, cell_len(column.name))
        ]
        if not able:
            break
        widths[max(able, key=widths.__getitem__)] -= 1
    return chosen, [
        [
            shortened(text, least, keeps_end=column.keeps_end) if column.shrinks else text
            for text, least, column in zip(row, widths, chosen, strict=True)
        ]
        for row in texts
    ]


def shortened(text: str, width: int, *, keeps_end: bool = False) -> str:
    """Return a text of at most `width` cells, with an ellipsis in place of what was cut off."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2 if keeps_end else 0
    tail = set_cell_size(text[::-1], end)[::-1]
    return f"{set_cell_size(text, width - 1 - end).rstrip()}{_ELLIPSIS}{tail}"


def _least(column: Column, width: int) -> int:
    return min(width, _COMFORTABLE) if column.shrinks else width


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([cell_len(column.name), *(cell_len(row[index]) for row in texts)]) for index, column in enumerate(columns)
    ]


def show_beside(left: Shown, right: Shown) -> None:
    """Print two tables side by side if the terminal is wide enough, otherwise one below the other."""
    out = console()
    tables = [table_of(columns, [[displayed(cell) for cell in row] for row in rows]) for columns, rows in (left, right)]
    width = sum(Measurement.get(out, out.options, table).maximum for table in tables) + _GAP
    if not out.is_terminal or width > out.width:
        show_table(*left)
        click.echo()
        show_table(*right)
        return
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_row(*tables)
    out.print(grid)


def table_of(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, ruled: bool = True) -> Table:
    """Return a table of texts; only its last column may wrap. `ruled`: with a line below the headings."""
    style, gap = (box.SIMPLE_HEAD, _GAP - 1) if ruled else (None, _GAP)  # a box adds a space between columns
    table = Table(box=style, pad_edge=False, show_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for index, column in enumerate(columns):
        is_last = index == len(columns) - 1
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=not is_last, overflow="fold")
    for row in rows:
        table.add_row(*(_text(cell, column) for cell, column in zip(row, columns, strict=True)))
    return table


def _folded(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], width: int
) -> RenderableType:
    """Return each row as one line with the columns that fit, and the others below it with their names."""
    fitting, used = 1, widths[0]
    while fitting < len(columns) and used + _GAP + widths[fitting] <= width:
        used += _GAP + widths[fitting]
        fitting += 1
    lines: list[RenderableType] = []
    for number, row in enumerate([[column.name for column in columns], *rows]):
        head = Text(style="" if number else "bold", overflow="fold")
        for index in range(fitting):
            space = " " * (widths[index] - cell_len(row[index]))
            head.append(" " * _GAP if index else "")
            head.append(space if columns[index].right else "")
            head.append(_text(row[index], columns[index]))
            head.append("" if columns[index].right or index == fitting - 1 else space)
        lines.append(head)
        if not number:
            lines.append(Text("─" * min(used, width)))
            continue
        rest = Text(overflow="fold")
        for index in range(fitting, len(columns)):
            if row[index] != _NOTHING:
                rest.append(", " if rest else "")
                if fitting < len(columns) - 1:  # a single column needs no name
                    rest.append(f"{columns[index].name} ", style="dim")
                rest.append(_text(row[index], columns[index]))
        if rest:
            lines.append(Padding(rest, (0, 0, 0, 4)))
    return Group(*lines)


def dated(instant: datetime | None) -> str | None:
    """Return an instant for a value that is shown by itself: the date, and on a terminal how long ago it was."""
    if instant is None:
        return None
    if not console().is_terminal:
        return iso(instant)
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC ({relative(instant)})"


def show_fields(fields: Sequence[tuple[Column | str, Cell]]) -> None:
    """Print names and values, one pair per line."""
    out = console()
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


def displayed(cell: Cell, *, is_wide: bool = True) -> str:
    """Return a cell for a terminal: relative times, durations with units, ids in full if the terminal is wide."""
    if cell is None or cell == "":
        return _NOTHING
    if isinstance(cell, Id):
        return cell.full if is_wide else cell.short
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
    if isinstance(cell, Id):
        return cell.full
    if isinstance(cell, datetime):
        return iso(cell)
    if isinstance(cell, timedelta):
        return f"{cell.total_seconds():.3f}"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return line(str(cell))
