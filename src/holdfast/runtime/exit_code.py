"""What the exit code of a process of ours tells: to our supervisor, to those of others, to scripts and to people.

From 69 on they are those of `sysexits.h`, which init systems know.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process of ours ended."""

    FINE = 0
    WRONG = 1  # no such job, nothing done, a check that failed
    USAGE = 2
    RELEASED = 3  # a worker broke off some jobs and gave them back, or left them to expire
    UNDECIDED = 4  # a torture run that came to no verdict, or was clean and not what was planned
    UNAVAILABLE = 69  # the store could not be reached
    BROKEN = 70  # an error of ours, or a worker whose own loop or thread has died
    STUCK = 71  # a worker ended itself because a handler did not end
    TEMPORARY = 75  # try again soon
    CONFIGURATION = 78  # starting again cannot help: a setting, or a node's name that another process has taken
    INTERRUPTED = 130
