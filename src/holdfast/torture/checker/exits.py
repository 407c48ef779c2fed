"""Which ends of processes nobody has asked for."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.events import Exited

_ERRORS: Final = frozenset({1, ExitCode.BROKEN})  # 1 is what the interpreter ends with after a traceback
CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""The signals that a process brings upon itself; the nemesis sends none of them."""


def unexpected(exits: Mapping[str, Exited]) -> Iterator[tuple[Exited, str]]:
    """Yield the processes that ended of an error that they did not expect, or crashed; and what there is to say."""
    for process, exited in exits.items():
        if exited.signal in CRASHES:
            name = signal.Signals(exited.signal or 0).name
            yield exited, f"{process} crashed with {name}: see its log, beside the history"
        elif exited.code in _ERRORS:
            yield exited, f"{process} ended by itself with code {exited.code}: see its log, beside the history"
