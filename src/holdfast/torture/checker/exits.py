"""Unexpected process exits."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.events import Exited

_ERRORS: Final = frozenset({1, ExitCode.BROKEN})  # 1 is the interpreter's exit code after a traceback
CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""Signals of a crash; the nemesis sends none of them."""


def unexpected(exits: Mapping[str, Exited]) -> Iterator[tuple[Exited, str]]:
    """Yield the processes that ended with an unexpected error or crashed, each with a message."""
    for process, exited in exits.items():
        if exited.signal in CRASHES:
            name = signal.Signals(exited.signal or 0).name
            yield exited, f"{process} crashed with {name}: see its log next to the history"
        elif exited.code in _ERRORS:
            yield exited, f"{process} exited with code {exited.code}: see its log next to the history"
