"""One server for a whole pytest run, xdist workers included, held by a keeper process.

Every test process holds a shared lock on a file. The keeper ends the server when it gets that lock for itself: when the
last of them has ended, however that was.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class KeeperFailedError(Exception):
    """The server did not start; the text is the keeper's log."""


def shared_url(name: str, keeper: Callable[[Path], Sequence[str]], *, timeout: float) -> str:
    """Return the URL of the run's server of this name, started if need be; raises `KeeperFailedError`.

    `keeper` returns the arguments of the Python program that starts the server and calls `hold` with the folder.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / f"holdfast-{name}-{os.getuid()}-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    used = os.open(folder / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(used, fcntl.LOCK_SH)  # until this process has ended
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        url = folder / "url"
        if not url.exists():
            _start(keeper(folder), folder, url, timeout)
        return url.read_text()


def _start(arguments: Sequence[str], folder: Path, url: Path, timeout: float) -> None:
    log = folder / "keeper.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=Path(__file__).parents[2],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests; the keeper ends after them
        )
    until = time.monotonic() + timeout
    while not url.exists():
        if keeper.poll() is not None or time.monotonic() > until:
            raise KeeperFailedError(log.read_text())
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process on purpose: nothing here waits for it


def hold(folder: Path, url: str, end: Callable[[], object] = lambda: None) -> None:
    """Hold a server until no test process is left; then call `end`, and remove the folder."""
    written = folder / "url.new"
    written.write_text(url)
    written.rename(folder / "url")
    with (folder / "used").open("a") as used:
        fcntl.flock(used, fcntl.LOCK_EX)  # granted when no test process is left
    end()
    shutil.rmtree(folder, ignore_errors=True)
