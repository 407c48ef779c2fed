"""The display during a run: live on a terminal, lines in a pipe."""

from __future__ import annotations

import time

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.live import RunDisplay
from holdfast.cli.table import STYLES
from holdfast.reports.text import line
from holdfast.torture.plan import MEANINGS, Fault
from holdfast.torture.progress import RunPhase, RunProgress

_LINE_PERIOD = 5.0


class TortureView(RunDisplay):
    """Displays a run."""

    period = 0.2

    def __init__(self, out: Console, progress: RunProgress) -> None:
        super().__init__(out)
        self._progress = progress
        self._phase: RunPhase | None = None

    def refresh(self) -> None:
        """Show the current state."""
        now = time.monotonic()
        progress = self._progress
        rate = self._rate.add(now, progress.ended)
        if self._live is not None:
            self._live.update(self._picture(rate), refresh=True)
        elif now >= self._next_line or progress.phase is not self._phase:
            self._next_line, self._phase = now + _LINE_PERIOD, progress.phase
            self._out.print(self._line(rate), soft_wrap=True)

    def _line(self, rate: float) -> str:
        progress = self._progress
        faults = ", ".join(f"{kind} {count}" for kind, count in progress.done.items())
        return (
            f"{progress.seconds:.0f} s {progress.phase}: {progress.enqueued:,} {progress.came}, "
            f"{progress.ended:,} ended, {progress.left:,} left, {rate:,.0f}/s; {progress.workers} workers; "
            f"faults: {faults or 'none yet'}" + (f"; {progress.doubled} DOUBLED" if progress.doubled else "")
        )

    def _picture(self, rate: float) -> RenderableType:
        progress = self._progress
        parts: list[RenderableType] = [self._bar(rate), Text(), _counts(progress), Text(), _faults(progress)]
        if progress.doubled:
            parts += [Text(), Text(f"{progress.doubled} effects happened twice", style="red bold")]
        if progress.events:
            parts += [Text(), *(Text(line(text), style="dim", no_wrap=True) for text in progress.events)]
        return Group(*parts)

    def _bar(self, rate: float) -> Table:
        progress = self._progress
        total = max(progress.plan.profile.jobs, progress.enqueued, 1)
        grid = Table.grid(padding=(0, 1), expand=True)
        for _ in range(5):
            grid.add_column(no_wrap=True)
        grid.columns[1].ratio = 1
        minutes, rest = divmod(int(progress.seconds), 60)
        grid.add_row(
            Text(str(progress.phase), style="bold"),
            ProgressBar(total=total, completed=min(progress.ended, total)),
            Text(f"{progress.ended:,}/{total:,}"),
            Text(f"{rate:>6,.0f}/s", style="cyan"),
            Text(f"{minutes}:{rest:02}", style="dim"),
        )
        return grid


def _counts(progress: RunProgress) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for state in progress.states:
        table.add_column(Text(state, style=STYLES.get(state, "")), justify="right", no_wrap=True)
    for name in ("workers", "started", "died"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(
        *(f"{progress.counts.get(state, 0):,}" for state in progress.states),
        str(progress.workers),
        str(progress.started),
        str(progress.deaths),
    )
    return table


def _faults(progress: RunProgress) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("fault", no_wrap=True)
    table.add_column("done", justify="right", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("what", overflow="ellipsis", no_wrap=True)
    for kind in Fault:
        wanted = progress.wanted.get(kind, 0)
        if wanted:
            done = progress.done.get(kind, 0)
            style = "green" if done >= wanted else "yellow"
            table.add_row(str(kind), Text(str(done), style=style), str(wanted), Text(MEANINGS[kind], style="dim"))
    return table
