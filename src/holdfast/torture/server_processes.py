"""The processes of a PostgreSQL server, which are in no group that could be signalled: each calls setsid."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from holdfast.torture.process_tree import descendants, is_alive, state_of

_LOOK = 0.005  # seconds
_STOPPING = 1.0


def postmasters(data: Path) -> list[int]:
    """Return what was started over a data directory: the postmaster, or `initdb`."""
    wanted = os.fsencode(str(data))
    found: list[int] = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end while we look
            words = line.read_bytes().split(b"\0")
            pid = int(line.parent.name)
            if b"-D" in words and wanted in words and is_alive(pid):
                found.append(pid)
    return found or _by_its_file(data)


def _by_its_file(data: Path) -> list[int]:
    """Where there is no /proc: the number that the postmaster has written down, if that process is there."""
    if Path("/proc/self").exists():
        return []
    try:
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return []
    return [pid]


def kill_whole(postmaster: int) -> None:
    """Kill a postmaster and all below it, and wait until they are gone.

    The postmaster is frozen first, so that it neither starts another process nor tidies up after the dead.
    """
    _send(postmaster, signal.SIGSTOP)
    give_up = time.monotonic() + _STOPPING
    while state_of(postmaster) in {"R", "S", "D"} and time.monotonic() < give_up:
        time.sleep(_LOOK / 10)
    pids = [*descendants(postmaster), postmaster]
    for pid in pids:
        _send(pid, signal.SIGKILL)
    while any(map(is_alive, pids)):  # a killed process ends as soon as the kernel lets it
        time.sleep(_LOOK)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
