"""Signal handling: the first signal ends the command, and everything that it has started is stopped."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_INTERRUPTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Unwinding:
    """The state of an interruption. The first signal unwinds the command; further ones are ignored."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the command is ending, by a signal or by itself; its cleanup must not be interrupted."""

    def on_signal(self, _number: int, _frame: object) -> None:
        """Handle a signal: the first raises KeyboardInterrupt."""
        if not self.has_begun:
            self.has_begun = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def unwound_by_signals() -> Generator[Unwinding]:
    """Make every terminating signal unwind the command, so that everything it has started is stopped.

    Signals that the caller ignores, as under nohup, stay ignored.
    """
    unwinding = Unwinding()
    before = {number: signal.signal(number, unwinding.on_signal) for number in terminating()}
    try:
        yield unwinding
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def terminating() -> set[signal.Signals]:
    """Return the terminating signals that are not ignored."""
    return {number for number in _INTERRUPTED if signal.getsignal(number) is not signal.SIG_IGN}
