"""How signals end the command: once, and with everything ended that it has started."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_INTERRUPTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Unwinding:
    """What has become of the signals that ask for an end. The first unwinds; those that follow change nothing."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the command is ending, by a signal or by itself: whatever is still to be ended must be."""

    def heard(self, _number: int, _frame: object) -> None:
        """Take in a signal."""
        if not self.has_begun:
            self.has_begun = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def unwound_by_signals() -> Generator[Unwinding]:
    """Have every signal that asks for an end unwind the command: whatever it has started is ended.

    What the caller has set to be ignored, as nohup does, stays ignored.
    """
    unwinding = Unwinding()
    before = {number: signal.signal(number, unwinding.heard) for number in asking()}
    try:
        yield unwinding
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def asking() -> set[signal.Signals]:
    """Return the signals that ask for an end, and are not ignored."""
    return {number for number in _INTERRUPTED if signal.getsignal(number) is not signal.SIG_IGN}
