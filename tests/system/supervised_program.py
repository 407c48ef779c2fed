"""A program with a supervisor in it, for tests to start, signal, listen to and kill."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.system.harness import SOON

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PROLOGUE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.worker.supervision.restarts import Delays
from holdfast.worker.supervision.supervisor import ChildSeat, Supervisor

HERE = Path(__file__).parent

def release(worker_id, reason):
    print(f"released {worker_id}: {reason}")

def ends_when_asked(*_):
    os.write(1, b"asked to end\\n")  # print may not be entered twice
    raise SystemExit(0)

def wait_to_be_asked():
    signal.signal(signal.SIGTERM, ends_when_asked)
    print(f"ready {os.getpid()}")
    while True:
        signal.pause()

def supervise(count, run, **options):
    options.setdefault("release", release)
    raise SystemExit(Supervisor(count, run, **options).run())
"""


class Program:
    """A supervisor in a process of its own, and the lines that it has written."""

    def __init__(self, script: Path) -> None:
        environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": ""}
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        self.seen: list[str] = []
        self._known: set[psutil.Process] = set()
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.reading = threading.Event()
        self.reading.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reading.wait()
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    def line(self, pattern: str, within: float = SOON) -> re.Match[str]:
        """Return the first match of `pattern` in the lines to come."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no line like {pattern!r} within {within} s; seen: {self.seen[-20:]}")
            if line is None:
                pytest.fail(f"the program ended before a line like {pattern!r}; seen: {self.seen[-20:]}")
            self.seen.append(line)
            if match := re.search(pattern, line):
                return match

    def ready(self, *labels: str) -> dict[str, int]:
        """Wait until every labelled child has said that it is ready; return their pids."""
        pids: dict[str, int] = {}
        while set(pids) != set(labels):
            match = self.line(r"\[(w\d)\] ready (\d+)")
            pids[match[1]] = int(match[2])
        return pids

    def end(self, within: float = SOON) -> int:
        """Wait for the end of the program; return its exit code. Its last lines are then in `seen`."""
        code = self.process.wait(within)
        self._reader.join(within)
        while (line := self._lines.get(timeout=within)) is not None:
            self.seen.append(line)
        return code

    def all_processes(self) -> list[psutil.Process]:
        me = psutil.Process(self.process.pid)
        found = [me, *me.children(recursive=True)]
        self._known.update(found)
        return found

    def close(self) -> None:
        self.reading.set()
        if self.process.poll() is None:
            self.all_processes()
        for process in self._known:  # those of a supervisor that a test has killed, too
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(SOON)
        self._reader.join(SOON)
        assert self.process.stdout is not None
        self.process.stdout.close()


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(processes: list[psutil.Process], within: float) -> None:
    deadline = time.monotonic() + within
    while left := [process for process in processes if not is_gone(process)]:
        assert time.monotonic() < deadline, f"still there after {within} s: {left}"
        psutil.wait_procs(left, timeout=0.05)


@contextlib.contextmanager
def started(folder: Path, body: str) -> Generator[Program]:
    """Run `body` after the prologue, as a script in `folder`; leave nothing of it behind."""
    script = folder / "program.py"
    script.write_text(PROLOGUE + body)
    program = Program(script)
    try:
        yield program
    finally:
        program.close()
