"""Processes of a benchmark: started fresh, made ready, and set off together.

A process finds its database's name in its environment, prints `ready` once it has imported and connected, waits for a
line, works, and prints one line of JSON. So the start of the interpreter is in no figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.raw.common import TARGET

_ROOT = Path(__file__).resolve().parents[1]
_PATIENCE = 1800.0


class Process:
    """One process that is ready to work."""

    def __init__(self, module: str, target: str, *arguments: str) -> None:
        paths = os.pathsep.join([*sys.path, str(_ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, TARGET: target}
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the benchmark, which ends its processes itself
        )
        self._resources = psutil.Process(self._child.pid)

    def line(self) -> str:
        """Wait for its next line."""
        assert self._child.stdout is not None
        return self._child.stdout.readline().rstrip("\n")

    def wait_until_ready(self) -> None:
        line = self.line()
        if line != "ready":
            message = f"a process of the benchmark did not start: {line!r}"
            raise RuntimeError(message)

    def go(self) -> None:
        """Let it work."""
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
        self._child.stdin.flush()

    def stop(self) -> None:
        """Let one that goes on come to its end."""
        self.go()

    def memory(self) -> float | None:
        """Return its resident memory in MB; None once it has ended."""
        try:
            return float(self._resources.memory_info().rss) / 1e6
        except psutil.NoSuchProcess:
            return None

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def result(self, patience: float = _PATIENCE) -> Any:
        """Wait for its end, at most so many seconds, and return its result."""
        out, _ = self._child.communicate(timeout=patience)
        if self._child.returncode != 0:
            message = f"a process of the benchmark ended with code {self._child.returncode}"
            raise RuntimeError(message)
        return json.loads(out)

    def kill(self) -> None:
        if not self.has_ended:
            self._child.kill()
        self._child.communicate()


@contextmanager
def started(count: int, module: str, target: str, *arguments: str) -> Generator[Sequence[Process]]:
    """Start processes and wait until each is ready; none outlives the block."""
    processes: list[Process] = []
    try:
        processes.extend(Process(module, target, *arguments) for _ in range(count))
        for process in processes:
            process.wait_until_ready()
        yield processes
    finally:
        for process in processes:
            process.kill()


def run(count: int, module: str, target: str, *arguments: str) -> list[Any]:
    """Set off `count` processes together and return the result of each."""
    with started(count, module, target, *arguments) as processes:
        for process in processes:
            process.go()
        return [process.result() for process in processes]
