"""The live status line of `worker run` on a terminal: under the log, replaced four times per second.

```text
   one process    each report of the worker refreshes it, with rich; what is printed meanwhile stands above it
   several        each process writes its reports into shared memory; the supervisor shows the sum under the joined logs
```
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import struct
import sys
import threading
import time
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.rate import Rate
from holdfast.cli.table import console
from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import WorkerEnd, WorkerReport, WorkerStart


class ProcessFigures(NamedTuple):
    """What a process does and has done."""

    slots: int = 0
    running: int = 0
    partitions: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    ended: int = 0
    """The number of attempts that ended, however they did."""
    events: int = 0

    @classmethod
    def of(cls, report: WorkerReport) -> ProcessFigures:
        """Return the figures of a report."""
        totals = report.totals
        return cls(
            slots=report.slots,
            running=report.running,
            partitions=report.partitions,
            done=totals.completed,
            failed=totals.failed,
            retried=totals.retried,
            ended=totals.completed + totals.failed + totals.retried + totals.snoozed + totals.cancelled,
            events=report.events,
        )


_NOW: Final = ProcessFigures._fields.index(
    "done"
)  # the figures before this one are of the moment, the others are totals


class StatusText:
    """The text of the line, with rates over the last seconds."""

    def __init__(self, *, has_consumers: bool) -> None:
        self._has_consumers = has_consumers
        self._jobs = Rate()
        self._events = Rate()

    def text(self, figures: ProcessFigures) -> str:
        """Return the line."""
        now = time.monotonic()
        parts: list[str] = []
        if figures.slots:
            parts += [
                f"running {figures.running}/{figures.slots}",
                f"done {figures.done:,}",
                f"failed {figures.failed:,}",
                f"retried {figures.retried:,}",
                f"{self._jobs.add(now, figures.ended):,.0f}/s",
            ]
        if self._has_consumers:
            rate = f"{self._events.add(now, figures.events):,.0f}/s"
            parts += [f"partitions {figures.partitions}", f"events {figures.events:,}", rate]
        return "  ".join(parts)


# --- one process ------------------------------------------------------------------------------------------------------


class StatusLine:
    """Shows what this process does; what is logged and printed meanwhile stands above the line."""

    def __init__(self, *, has_consumers: bool) -> None:
        self._text = StatusText(has_consumers=has_consumers)
        self._shown = contextlib.ExitStack()
        self._live: Live | None = None

    def observe(self, hooks: Hooks) -> None:
        """Show the line from the start of the work to its end."""
        hooks.worker_start(self._begin)
        hooks.worker_report(self._refresh)
        hooks.worker_end(self._end)

    def _begin(self, _: WorkerStart) -> None:
        out = console(stderr=True)
        live = Live(console=out, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._live = self._shown.enter_context(live)
        self._shown.enter_context(_above(out))

    def _refresh(self, report: WorkerReport) -> None:
        line = Text(self._text.text(ProcessFigures.of(report)), style="dim", no_wrap=True, overflow="ellipsis")
        if self._live is not None:
            self._live.update(line, refresh=True)

    def _end(self, _: WorkerEnd) -> None:
        self._live = None
        self._shown.close()


# --- several processes ------------------------------------------------------------------------------------------------


class SharedFigures:
    """The figures of the processes of a supervisor, in memory that they share with it; made before the first fork."""

    def __init__(self, processes: int, *, has_consumers: bool) -> None:
        self._slot = struct.Struct(f"{len(ProcessFigures._fields)}q")
        self._memory = mmap.mmap(-1, processes * self._slot.size)
        self._processes = processes
        self._text = StatusText(has_consumers=has_consumers)
        self._before: tuple[int, ...] | None = None  # the totals of the predecessors; read by a process that reports

    def _read(self, seat: int) -> ProcessFigures:
        return ProcessFigures(*self._slot.unpack_from(self._memory, seat * self._slot.size))

    def write(self, report: WorkerReport) -> None:
        """Write the figures of this process; it adds to the totals of its predecessors in the seat."""
        if self._before is None:
            self._before = self._read(report.seat)[_NOW:]
        figures = ProcessFigures.of(report)
        totals = [total + earlier for total, earlier in zip(figures[_NOW:], self._before, strict=True)]
        self._slot.pack_into(self._memory, report.seat * self._slot.size, *figures[:_NOW], *totals)

    def line(self) -> str:
        """Return the line of the sum."""
        seats = [self._read(seat) for seat in range(self._processes)]
        return self._text.text(ProcessFigures(*(sum(column) for column in zip(*seats, strict=True))))


# --- what is written meanwhile ----------------------------------------------------------------------------------------


class LinesAbove:
    """A stream whose whole lines are printed above the status line, unwrapped; the rest of the stream is unchanged."""

    def __init__(self, out: Console, stream: TextIO) -> None:
        self._out = out
        self._stream = self.rich_proxied_file = stream  # rich writes to the file of this name
        self._partial = ""
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Print the lines that are complete."""
        with self._lock:
            lines, newline, self._partial = (self._partial + text).rpartition("\n")
        if newline:
            self._out.out(lines, highlight=False)
        return len(text)

    def end(self) -> None:
        """Write an unfinished line to the stream itself."""
        with self._lock:
            self._stream.write(self._partial)
            self._partial = ""


@contextlib.contextmanager
def _above(out: Console) -> Generator[None]:
    """Lead the standard streams, if they are terminals, and the log handlers on them above the status line."""
    before = {name: cast("TextIO", getattr(sys, name)) for name in ("stdout", "stderr")}
    above = {name: LinesAbove(out, stream) for name, stream in before.items() if stream.isatty()}
    moved: list[tuple[logging.StreamHandler[Any], TextIO]] = []
    for handler in _stream_handlers():
        for name, lines in above.items():
            if handler.stream is before[name]:
                moved.append((handler, before[name]))
                handler.setStream(lines)
    for name, lines in above.items():
        setattr(sys, name, lines)
    try:
        yield
    finally:
        for name, lines in above.items():
            setattr(sys, name, before[name])
            lines.end()
        for handler, stream in moved:
            handler.setStream(stream)


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = {handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers}
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
