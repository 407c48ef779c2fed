"""Tracing of system calls, which some promises can be shown by alone; named like a server when it cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Any

from tests.servers.missing import give_up

_WHAT = "durability, by tracing system calls"


@cache
def _found() -> bool:
    if shutil.which("strace") is None and os.getuid() == 0 and shutil.which("apt-get") is not None:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "strace"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, capture_output=True, env=environment)
    return shutil.which("strace") is not None


def require_strace() -> None:
    """Go on if there is a strace, or one can be installed; else the test is not run, and fails where CI=true."""
    if not _found():
        give_up(_WHAT, "there is no strace on this machine: apt install strace")


def unless_refused(program: subprocess.CompletedProcess[Any]) -> None:
    """Go on unless the machine does not allow tracing."""
    if program.returncode and "ptrace" in str(program.stderr):
        give_up(_WHAT, "this machine does not allow tracing")
