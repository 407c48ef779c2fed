"""The live status line of `worker run` on a terminal: one line under the log, replaced four times per second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.app.run_worker import WorkerProcess
from holdfast.cli.rate import Rate
from holdfast.cli.table import console

_PERIOD: Final = 0.25


@contextlib.asynccontextmanager
async def status_line(process: WorkerProcess) -> AsyncIterator[None]:
    """Show what a process does until the block ends; what is logged and printed meanwhile stands above the line."""
    out = console(stderr=True)
    status = ProcessStatus(process)
    with (
        Live(console=out, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False) as live,
        _above(out),
    ):
        refreshing = asyncio.create_task(_refresh(live, status))
        try:
            yield
        finally:
            refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):  # the terminal may be gone
                await refreshing


async def _refresh(live: Live, status: ProcessStatus) -> None:
    while True:
        live.update(status.text(time.monotonic()), refresh=True)
        await asyncio.sleep(_PERIOD)


class ProcessStatus:
    """What the status line says of a process."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._jobs = Rate()
        self._events = Rate()

    def text(self, now: float) -> Text:
        """Return the line."""
        parts: list[str] = []
        worker, node = self._process.worker, self._process.node
        if worker is not None:
            status = worker.status()
            totals = status.totals
            ended = totals.completed + totals.retried + totals.snoozed + totals.failed + totals.cancelled
            parts += [
                str(status.phase),
                f"{len(status.running)}/{worker.settings.concurrency} jobs",
                f"done {totals.completed:,}",
                f"failed {totals.failed:,}",
                f"retried {totals.retried:,}",
                f"{self._jobs.add(now, ended):,.0f}/s",
            ]
        if node is not None:
            seen = node.status()
            parts += [
                f"{len(seen.shares)} partitions",
                f"events {seen.handled:,}",
                f"{self._events.add(now, seen.handled):,.0f}/s",
            ]
        return Text("  ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")


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
def _above(out: Console) -> Iterator[None]:
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
