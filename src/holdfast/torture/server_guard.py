"""Ends the server of a run when the command that started it is gone, whatever ended that: `python -m … FOLDER [keep]`.

The guard waits for the end of its standard input, whose other end only the command holds. A byte before that end means
that all is in order, and nothing is left to do. A session of its own keeps the signals of a terminal away from it.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from holdfast.torture.server_processes import kill_whole, postmasters

_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def guard(folder: Path, *, keeps: bool) -> None:
    """Wait for the end of the command; then end its server, and remove the folder unless it is to be kept."""
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.buffer.read(1):
        return
    while found := postmasters(folder / "data"):  # again, if one was just about to be started
        for pid in found:
            kill_whole(pid)
    if not keeps:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), keeps="keep" in sys.argv[2:])
