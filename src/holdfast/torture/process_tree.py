"""Processes that are not our own children, read from /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

_GONE: Final = frozenset({"", "Z", "X"})  # a zombie does not run


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may exit meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *descendants(child)]
    return found


def state_of(pid: int) -> str:
    """Return the state letter of a process; empty if it does not exist."""
    return _fields(pid)[0]


class ProcessIdentity(NamedTuple):
    """A process, identified by its pid and start time; the start time is empty if it does not exist."""

    pid: int
    at: str

    @property
    def is_running(self) -> bool:
        """Whether this process, and not one that reuses its pid, still runs."""
        state, at = _fields(self.pid)
        return at == self.at and state not in _GONE


def identify(pid: int) -> ProcessIdentity:
    """Return the process that currently has a pid."""
    return ProcessIdentity(pid, _fields(pid)[1])


def _fields(pid: int) -> tuple[str, str]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return state_of(pid) not in _GONE
