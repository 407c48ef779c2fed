"""Ensure that child processes do not outlive their supervisor, whatever kills it.

Two mechanisms, because each covers a gap of the other:

- The **lifeline** is a pipe whose write end only the supervisor has open. A **guardian**, one small process per
  child, leads the child's process group and waits for end of file on the pipe; it then kills the whole group, itself
  included. It is a process rather than a thread of the child, for two reasons: a thread cannot run while C code
  holds the interpreter lock, and a thread dies with the child, which would leave the child's own children running.
  The guardian starts before the child, so no child is ever unguarded. As long as it exists (running or not yet
  reaped), the kernel cannot reuse the number of the process group.
- On Linux, `PR_SET_PDEATHSIG` makes the kernel kill the child itself, even if the guardian was killed.

A process that leaves the group on purpose (`setsid`) also leaves this protection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


def _load_libc() -> ctypes.CDLL | None:
    """Return the C library on Linux; None on other systems, or if Python was built without ctypes."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:
        return None
    return ctypes.CDLL(None, use_errno=True)


_libc = _load_libc()  # before any fork: loading libraries in a forked child is not safe


def die_with(parent: int) -> None:
    """On Linux, have the kernel kill this process when `parent` ends; exit now if it has already ended."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent died between the fork and the line above
        os._exit(128 + signal.SIGKILL)


def adopt_orphans(wanted: bool) -> None:
    """On Linux, make this process, instead of process 1, the parent of orphaned descendants.

    It is then notified when they end, and does not depend on a process 1 that reaps late or, as in many containers,
    never. A process that adopts orphans must reap all its children.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


class Lifeline:
    """A pipe that closes when its owner exits, and the guardians that wait for that.

    Every forked process must close `ends`: another open copy of the write end would keep the pipe open.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.ends = (self._read, self._write)

    def guard(self, *, close: Iterable[int]) -> int:
        """Fork a guardian that leads a new process group; return the group. It also closes the descriptors `close`."""
        pid = os.fork()
        if pid == 0:
            try:
                self._watch(close)
            finally:
                os._exit(1)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the guardian does the same: the first wins
            os.setpgid(pid, pid)
        return pid

    def _watch(self, close: Iterable[int]) -> None:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _IGNORED:  # a signal to the group is meant for the child
            signal.signal(number, signal.SIG_IGN)
        for fd in {0, 1, 2, self._write, *close} - {self._read}:
            with contextlib.suppress(OSError):  # already closed
                os.close(fd)
        if _libc is not None:
            _libc.prctl(_PR_SET_NAME, b"holdfast-guard", 0, 0, 0)
        while os.read(self._read, 1):  # never written to: returns once, empty, when the owner has exited
            pass
        os.killpg(0, signal.SIGKILL)

    def cut(self) -> None:
        """Close the pipe: the guardians kill every group that still runs."""
        for fd in self.ends:
            os.close(fd)
