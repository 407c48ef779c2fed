"""Processes that are not our own children, as far as this system tells of them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

_GONE: Final = frozenset({"", "Z", "X"})  # a process that only waits to be reaped does not run


def below(pid: int) -> list[int]:
    """Return the processes below one, as far as this system tells."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may end while we look
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *below(child)]
    return found


def state_of(pid: int) -> str:
    """Return the letter of a process's state; empty if there is none."""
    return _fields(pid)[0]


class Born(NamedTuple):
    """A process, told from a later one of the same number by when it was started; that is empty if there is none."""

    pid: int
    at: str

    @property
    def is_there(self) -> bool:
        """Whether this very process still runs."""
        state, at = _fields(self.pid)
        return at == self.at and state not in _GONE


def born(pid: int) -> Born:
    """Return the process that has a number now."""
    return Born(pid, _fields(pid)[1])


def _fields(pid: int) -> tuple[str, str]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    return state_of(pid) not in _GONE
