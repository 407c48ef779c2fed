"""One child of the supervisor: how it is forked and set up, how it ends, and how its process group is killed."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from holdfast.errors import ConfigError
from holdfast.runtime.exit_code import ExitCode
from holdfast.runtime.parent_death import Lifeline, die_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WATCHED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""The signals whose handlers a child must not inherit from the supervisor."""


@dataclass(frozen=True, slots=True)
class ChildSeat:
    """A numbered seat of the supervisor and its current worker id: each incarnation has a separate one."""

    index: int
    worker_id: str
    supervisor_id: str = ""

    @property
    def label(self) -> str:
        """The seat's name in logs."""
        return f"w{self.index}"


def describe(code: int) -> str:
    """Describe how a child ended, from its code as returned by `reap`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # real-time signals have no name
        return f"killed by signal {-code}"


def reap() -> dict[int, int]:
    """Reap every child of this process that has ended, adopted orphans too; return the exit code of each pid.

    A negative code is the number of the signal that killed it.
    """
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):  # there are no children
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def fork(
    body: Callable[[], int], *, close: Iterable[int], group: int = 0, parent: int | None = None
) -> tuple[int, int]:
    """Fork a process that runs `body` and exits with its return value; return its pid and the read end of its output.

    The process joins process group `group` (0: a new one), dies with `parent` if given, has Python's default signal
    handlers, an empty standard input, and one pipe for standard output and error. Signals are blocked until it is set
    up. An exception is printed and becomes exit code 70, or 78 if it is a ConfigError.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise the child would write the buffer again
    read, write = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        pid = os.fork()
        if pid == 0:
            _run(body, close=[*close, read], output=write, group=group, parent=parent, mask=mask)
    except OSError:
        os.close(read)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(write)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # the child does the same
        os.setpgid(pid, group or pid)
    return pid, read


def _run(
    body: Callable[[], int],
    *,
    close: Iterable[int],
    output: int,
    group: int,
    parent: int | None,
    mask: Iterable[int],
) -> NoReturn:
    code: int = ExitCode.BROKEN
    try:
        os.setpgid(0, group)
        if parent is not None:
            die_with(parent)
        _set_up_signals(mask)
        _set_up_streams(close, output)
        code = body()
    except SystemExit as request:
        code = _code_of(request)
    except ConfigError:
        traceback.print_exc()
        code = ExitCode.CONFIGURATION
    except BaseException:  # noqa: BLE001 - the child ends here: no caller could catch it
        traceback.print_exc()
    finally:
        try:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def _set_up_signals(mask: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in WATCHED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _set_up_streams(close: Iterable[int], output: int) -> None:
    for fd in close:
        os.close(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for fd in (null, output):
        os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # Python buffers output to a pipe by default


def _code_of(request: SystemExit) -> int:
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code
    print(request.code, file=sys.stderr)  # noqa: T201 - as the interpreter does for sys.exit("text")
    return 1


class SupervisedChild:
    """A running child, and its process group, which has a guardian as its leader and may outlive the child."""

    def __init__(self, body: Callable[[], int], *, lifeline: Lifeline, close: Iterable[int]) -> None:
        close = list(close)
        self.started = time.monotonic()
        self._group = lifeline.guard(close=close)
        try:
            self.pid, self.output = fork(body, close=[*close, *lifeline.ends], group=self._group, parent=os.getpid())
        except OSError:
            os.kill(self._group, signal.SIGKILL)
            os.waitpid(self._group, 0)
            raise

    def terminate(self) -> None:
        """Send SIGTERM to the child, not to its own children."""
        os.kill(self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """Kill all processes left in the group. Never after `is_group_gone` returned True: the number may be reused."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone already, or only zombies (macOS)
            os.killpg(self._group, signal.SIGKILL)

    def is_group_gone(self) -> bool:
        """Return whether no process is left in the group. Zombies count: `reap` first."""
        try:
            os.killpg(self._group, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # a process that we may not signal
            return False
        return False
