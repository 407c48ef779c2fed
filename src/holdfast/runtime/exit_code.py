"""The exit codes of Holdfast's processes, for its supervisor, init systems, scripts and operators.

From 69 on the codes are those of `sysexits.h`, which init systems understand.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process of Holdfast ended."""

    FINE = 0
    WRONG = 1  # not found, nothing to do, or a failed check
    USAGE = 2
    RELEASED = 3  # a worker interrupted some jobs and released them, or left their leases to expire
    UNDECIDED = 4  # a torture run without a verdict, or a clean one that did less than planned
    UNAVAILABLE = 69  # the store could not be reached
    BROKEN = 70  # an internal error, or a worker whose own event loop or thread died
    STUCK = 71  # a worker killed itself because a handler did not return
    TEMPORARY = 75  # a retry may succeed
    CONFIGURATION = 78  # a restart cannot help: an invalid setting, or a node id that another process uses
    INTERRUPTED = 130
