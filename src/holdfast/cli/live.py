"""What is redrawn in place on a terminal: frames, until `q` or Ctrl-C, and the display of a run, until it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

import click
from rich.console import Console, RenderableType
from rich.live import Live

from holdfast.cli.rate import Rate
from holdfast.cli.table import console
from holdfast.cli.target import StoreTarget
from holdfast.cli.times import duration

if TYPE_CHECKING:
    from holdfast.app.app import App

Frame = Callable[["App", Console], Awaitable[RenderableType]]
_QUIET_SHARE = 9  # the pause after a frame is at least this many times as long as its queries took

watch_option = click.option(
    "--watch",
    metavar="[SECONDS]",
    is_flag=False,
    flag_value="2",
    type=duration,
    help="Redraw in place, every 2 seconds or as given, until q or Ctrl-C.",
)


def check_watch(watch: float | None, *, as_json: bool) -> None:
    """Raise a usage error if there is no terminal to redraw, or nothing to be redrawn."""
    if watch is None:
        return
    if as_json:
        raise click.UsageError("--watch redraws a terminal: leave it out with --json")
    if not console().is_terminal:
        raise click.UsageError("--watch redraws a terminal, and the output is not one: leave it out in a pipe")


def show_live(target: StoreTarget, frame: Frame, interval: float, *, full_screen: bool = False) -> None:
    """Draw a frame every `interval` seconds until `q`, Ctrl-C or SIGTERM.

    However long the queries of a frame take, they keep the store busy for at most a tenth of the time.
    """
    out = console()

    async def redraw(app: App) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        with (
            _keys(loop, stop),
            Live(console=out, screen=full_screen, auto_refresh=False, vertical_overflow="crop") as live,
        ):
            while not stop.is_set():
                began = loop.time()
                live.update(await frame(app, out), refresh=True)
                pause = max(interval, _QUIET_SHARE * (loop.time() - began))
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()

    target.run(redraw)


@contextmanager
def _keys(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> Generator[None]:
    """Set `stop` when `q` is pressed; without a keyboard, do nothing."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if os.read(descriptor, 64).lower() in {b"q", b""}:
            stop.set()

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class RunDisplay:
    """The display of a run, in a `with` block: live on a terminal, otherwise lines."""

    period: ClassVar[float]
    """The seconds between two refreshes."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._live: Live | None = None
        self._rate = Rate()
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self._out.is_terminal:
            self._live = Live(console=self._out, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._out.print()
