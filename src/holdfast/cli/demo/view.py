"""The display during a run: live on a terminal, lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.conductor import DemoConductor, DemoSeat, SeatState
from holdfast.cli.live import RunDisplay
from holdfast.cli.rate import Rate
from holdfast.reports.text import line

_STYLES = {
    SeatState.STARTING: "dim",
    SeatState.WORKING: "green",
    SeatState.WAITING: "yellow",
    SeatState.KILLED: "red",
    SeatState.ENDED: "dim",
}
_LINE_PERIOD = 2.0
_EVENTS = 4


class DemoView(RunDisplay):
    """Displays a run."""

    period = 0.1

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self._began = time.monotonic()
        self._step = "producing"
        self._ended = 0
        self._ended_first = 0
        self._jobs = 0
        self._conductor: DemoConductor | None = None
        self._events: list[str] = []

    def producing(self, produced: int, jobs: int) -> None:
        """Show the progress of production."""
        self._ended, self._jobs = produced, jobs
        self._draw(is_last=produced == jobs)

    def consuming(self, conductor: DemoConductor, jobs: int) -> None:
        """Show these workers from now on."""
        self._step, self._conductor, self._jobs = "consuming", conductor, jobs
        self._began, self._rate, self._next_line = time.monotonic(), Rate(), 0.0
        self._ended_first = conductor.ended

    def event(self, text: str) -> None:
        """Show an event."""
        if self._live is None:
            click.echo(line(text))
        self._events = [*self._events, text][-_EVENTS:]

    def refresh(self) -> None:
        """Show the current state."""
        if self._conductor is not None:
            self._ended = self._conductor.ended
            self._draw(is_last=all(seat.state is SeatState.ENDED for seat in self._conductor.seats))

    def _draw(self, *, is_last: bool) -> None:
        now = time.monotonic()
        rate = self._rate.add(now, self._ended)
        if is_last:
            rate = (self._ended - self._ended_first) / max(now - self._began, 0.001)
        if self._live is not None:
            self._live.update(self._picture(now - self._began, rate), refresh=True)
        elif is_last or now >= self._next_line:
            self._next_line = now + _LINE_PERIOD
            click.echo(f"{self._step} {self._ended:,} of {self._jobs:,} ({self._share:.0%}), {rate:,.0f}/s")

    @property
    def _share(self) -> float:
        return min(1.0, self._ended / self._jobs) if self._jobs else 0.0

    def _picture(self, seconds: float, rate: float) -> RenderableType:
        parts: list[RenderableType] = [self._bar(seconds, rate)]
        if self._conductor is not None:
            parts += [Text(), _seats(self._conductor.seats)]
        if self._events:
            parts += [Text(), *(Text(line(text), style="red") for text in self._events)]
        return Group(*parts)

    def _bar(self, seconds: float, rate: float) -> Table:
        grid = Table.grid(padding=(0, 1), expand=True)
        for _ in range(6):
            grid.add_column(no_wrap=True)
        grid.columns[1].ratio = 1
        minutes, rest = divmod(int(seconds), 60)
        grid.add_row(
            Text(self._step, style="bold"),
            ProgressBar(
                total=max(1, self._jobs),
                completed=min(self._ended, self._jobs),
                complete_style="cyan",
                finished_style="green",
            ),
            Text(f"{self._ended:,}/{self._jobs:,}"),
            Text(f"{self._share:4.0%}"),
            Text(f"{rate:>6,.0f}/s", style="cyan"),
            Text(f"{minutes}:{rest:02}", style="dim"),
        )
        return grid


def _seats(seats: list[DemoSeat]) -> Table:
    """Return the state of each worker, and its completed jobs by the used attempts they took."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 0, 0, 2))
    for name in ("worker", "pid", "done", "1st", "2nd", "3rd", "later", "failed", "killed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", min_width=max(map(len, SeatState)))
    for seat in seats:
        total = seat.total
        table.add_row(
            str(seat.number),
            str(seat.pid or ""),
            f"{total.done:,}",
            *_by_attempt(total.used_attempts),
            f"{total.failed_attempts:,}",
            Text(f"{seat.killed}", style="red" if seat.killed else ""),
            Text(seat.state, style=_STYLES[seat.state]),
        )
    return table


def _by_attempt(used_attempts: Mapping[int, int]) -> tuple[str, str, str, str]:
    """Return how many jobs completed at the first attempt, the second, the third, and later."""
    first, second, third = (used_attempts.get(number, 0) for number in (1, 2, 3))
    more = sum(used_attempts.values()) - first - second - third
    return (f"{first:,}", f"{second:,}", f"{third:,}", f"{more:,}")
