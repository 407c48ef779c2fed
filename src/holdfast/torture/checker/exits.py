"""Unexpected process exits, and what a run has left over."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.events import Dumped, Exited

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


def left_over(
    exits: Mapping[str, Exited], dumps: Sequence[Dumped], *, owned: str, when: str
) -> Iterator[tuple[str, int | None]]:
    """Yield what must not be at the end of a run, and the time of it, if it has one; `owned` names what was leased."""
    for exited, what in unexpected(exits):
        yield what, exited.at_us
    if not dumps:
        yield "the run has no final dump: it did not finish", None
    for dump in dumps:
        counts = {
            owned: dump.leases,
            "transactions": dump.transactions,
            "connections": dump.connections,
            "processes": dump.processes,
        }
        for what, count in counts.items():
            if count:
                yield f"{count} {what} are left over {when}", None
        if dump.integrity:
            yield f"the store is damaged: {dump.integrity}", None
