"""A server as a process of its own, as `holdfast server run` starts it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class RunningServer(NamedTuple):
    """The process, its URL, and its port, for one that follows it."""

    process: subprocess.Popen[str]
    url: str
    port: int


def start_server(store: str, *options: str, port: int = 0) -> RunningServer:
    command = [sys.executable, "-m", "holdfast", "server", "run", "--url", store, "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"on (http://\S+:(\d+))\S*/$", line.strip()):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # nothing may fill the pipe
            return RunningServer(process, found[1], int(found[2]))
    raise AssertionError("".join(lines))


@contextmanager
def running_server(store: str, *options: str) -> Iterator[RunningServer]:
    running = start_server(store, *options)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(10)
        if running.process.stderr is not None:
            running.process.stderr.close()
