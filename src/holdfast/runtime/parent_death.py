"""Children that cannot outlive their supervisor, whatever kills it.

Two lines of defence, because each has a hole that the other closes:

- The **lifeline** is a pipe whose write end only the supervisor holds. A **guardian**, one small process per
  child, leads the child's process group and waits for the pipe to end; it then kills the whole group, itself
  included. It is a process and not a thread of the child, for two reasons: a thread cannot run while C code
  holds the interpreter's lock, and a thread dies with the child, which leaves the child's own children behind.
  It exists before the child does, so no child is ever unguarded, and while it lives (or lies unreaped) the
  group's number cannot be given to strangers.
- On Linux, `PR_SET_PDEATHSIG` has the kernel kill the child itself, even if the guardian has been killed.

What leaves the group on purpose (`setsid`) leaves this protection too.
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
_DEAF_TO: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


def _load_libc() -> ctypes.CDLL | None:
    """Return the C library on Linux; None elsewhere, or where Python was built without ctypes."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:
        return None
    return ctypes.CDLL(None, use_errno=True)


_libc = _load_libc()  # before any fork: a child should not have to load anything to be safe


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, where the kernel can; end now if it already has."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died between the fork and the line above
        os._exit(128 + signal.SIGKILL)


def adopt_orphans(wanted: bool) -> None:
    """Have the kernel make this process, not process 1, the parent of orphans below it, where the kernel can.

    Their ends are then events for this process, and nobody depends on a process 1 that reaps late or, as in many
    containers, never. Whoever adopts must wait for all its children.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


class Lifeline:
    """A pipe that ends when its owner does, and the guardians that wait for that.

    Whoever is forked must close `ends`: a stray copy of the write end would keep the pipe open.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.ends = (self._read, self._write)

    def guard(self, *, close: Iterable[int]) -> int:
        """Fork a guardian that leads a new process group; return the group. `close`: what else it must not hold."""
        pid = os.fork()
        if pid == 0:
            try:
                self._watch(close)
            finally:
                os._exit(1)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the guardian does the same: first wins
            os.setpgid(pid, pid)
        return pid

    def _watch(self, close: Iterable[int]) -> None:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _DEAF_TO:  # a signal to the group is meant for the child
            signal.signal(number, signal.SIG_IGN)
        for fd in {0, 1, 2, self._write, *close} - {self._read}:
            with contextlib.suppress(OSError):  # already closed is as good
                os.close(fd)
        if _libc is not None:
            _libc.prctl(_PR_SET_NAME, b"holdfast-guard", 0, 0, 0)
        while os.read(self._read, 1):  # nobody writes: this returns once, empty, when the owner is gone
            pass
        os.killpg(0, signal.SIGKILL)

    def cut(self) -> None:
        """End the lifeline: whatever is still guarded is killed."""
        for fd in self.ends:
            os.close(fd)
