"""Workers as real processes, the jobs and effects as seen from outside, and gates to keep a handler waiting."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from tests.system.apps import ledger_app
from tests.system.stores import Effect, Store

from holdfast import App, TaskHandle
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.values import JobDetails, LeaseView

ROOT = Path(__file__).parents[2]
SOON = 20.0  # generous: the machine may be busy; promises with a number are measured apart
BUSY = 2.0  # seconds that a promise with a number is given on top, for a machine that does other things
_LOOK = 0.01
T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, *, within: float = SOON) -> T:
    """Return what `look` returns as soon as that is true; fail when it is not within some seconds."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within} s: {what}")
        time.sleep(_LOOK)
    return found


class Gate:
    """A FIFO at which a handler or a failpoint waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._descriptor: int | None = None

    def reached(self, *, within: float = SOON) -> None:
        """Wait until somebody waits at the gate."""
        self._descriptor = eventually(self._try, f"somebody waits at {self.path}", within=within)

    def _try(self) -> int | None:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None

    def open(self) -> None:
        """Let those who wait go on."""
        if self._descriptor is None:
            self.reached()
        assert self._descriptor is not None
        os.write(self._descriptor, b"!")
        self.close()

    def keep_open(self, until: Callable[[], object], what: str, *, within: float = SOON) -> None:
        """Let everybody go on, late-comers too, until something has come about."""

        def look() -> bool:
            if self._descriptor is None:
                self._descriptor = self._try()
            if self._descriptor is not None:
                self.open()
            return bool(until())

        eventually(look, what, within=within)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Program:
    """A Python program in a process of its own, and the lines that it writes."""

    def __init__(self, module: str, *arguments: str, environment: dict[str, str]) -> None:
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._known: dict[int, psutil.Process] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", **environment},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def line(self, pattern: str, *, within: float = SOON) -> re.Match[str]:
        """Return the first match of `pattern` in the lines to come."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no line like {pattern!r} within {within} s; seen:\n{self.text}")
            if line is None:
                pytest.fail(f"the program ended before a line like {pattern!r}; seen:\n{self.text}")
            self.seen.append(line)
            if match := re.search(pattern, line):
                return match

    def end(self, *, within: float = SOON) -> int:
        """Wait for the end of the program and return its exit code; all of its lines are then in `seen`."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            while not self._lines.empty():
                self.seen.append(str(self._lines.get()))
            pytest.fail(f"the program has not ended within {within} s; seen:\n{self.text}")
        self._drain()
        return code

    def _drain(self) -> None:
        deadline = time.monotonic() + SOON
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            self.seen.append(line)
        self._lines.put(None)

    @property
    def text(self) -> str:
        return "\n".join(self.seen[-60:])

    def below(self) -> list[psutil.Process]:
        """Return all processes under this one; those are ended with the test, whatever happens to this one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                self._known[process.pid] = process
        return list(self._known.values())

    def kill(self) -> None:
        """Kill this process alone, as the system does when memory runs out, and wait for its end."""
        self.below()
        self.process.kill()
        self.process.wait(SOON)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stopped(self) -> None:
        """Wait until the process stands still."""
        process = psutil.Process(self.pid)
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, "the process was stopped")

    def close(self) -> None:
        for process in self.below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SOON)
        self._reader.join(SOON)
        assert self.process.stdout is not None
        self.process.stdout.close()


def is_empty(process: psutil.Process) -> bool:
    """Whether nothing of a killed process is left but its exit code.

    Its first thread may be a zombie while others still hold the open files: a gate, the lock of a database.
    """
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def all_gone(processes: Sequence[psutil.Process], *, within: float) -> None:
    """Wait until none of them runs; fail after some seconds."""

    def gone(process: psutil.Process) -> bool:
        try:
            return not process.is_running() or is_empty(process)
        except psutil.NoSuchProcess:
            return True

    eventually(lambda: all(gone(process) for process in processes), f"all of {processes} are gone", within=within)


class Ledger:
    """The store as its users see it: enqueue, look, and count the effects."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.app = App(store.url)
        for task in ledger_app.app.tasks:
            self.app.tasks.add(task)

    def enqueue(self, task: str, options: dict[str, Any] | None = None, /, **arguments: Any) -> str:
        return self.enqueue_many(task, [arguments], options)[0]

    def enqueue_many(
        self, task: str, calls: Sequence[dict[str, Any]], options: dict[str, Any] | None = None
    ) -> list[str]:
        definition = self.app.tasks.get(task)
        handle: TaskHandle[..., Any] = TaskHandle(self.app, definition, definition.handler)
        jobs = self.app.portal.call(handle.options(**(options or {})).enqueue_many(calls))
        return [job.id for job in jobs]

    def show(self, job_id: str) -> JobDetails:
        return self.app.portal.call(self.app.jobs.show(job_id))

    def state(self, job_id: str) -> JobState:
        return self.show(job_id).job.state

    def used_attempts(self, job_id: str) -> object:
        """Return what the handlers of `ledger_app` leave as their result."""
        return self.app.portal.call(self.app.job(job_id).result())

    def ended(self, job_id: str, *, within: float = SOON) -> JobState:
        """Wait until a job has ended and return how."""
        eventually(lambda: self.state(job_id) in FINAL_STATES, f"job {job_id} has ended", within=within)
        return self.state(job_id)

    def completed(self, *job_ids: str, within: float = SOON) -> None:
        for job_id in job_ids:
            state = self.ended(job_id, within=within)
            assert state == JobState.COMPLETED, self.show(job_id)

    def leases(self) -> list[LeaseView]:
        return self.app.portal.call(self.app.leases(1000))

    def expired(self, job_id: str, leases: float) -> None:
        """Wait until the lease of a job ended so many lease lengths after its last extension, and more."""
        late = (leases - 1) * self.store.lease

        def is_late() -> bool:
            return any(lease.job_id == job_id and lease.expires_in.total_seconds() <= -late for lease in self.leases())

        eventually(is_late, f"the lease of {job_id} is over since {late} s")

    def effects_of(self, job_id: str) -> list[Effect]:
        return [effect for effect in self.store.effects() if effect.job_id == job_id]

    def assert_once(self, job_ids: Sequence[str]) -> None:
        """Every job is completed and has taken effect exactly once, under the fence of its last attempt."""
        effects = self.store.effects()
        doubled = sorted({effect for effect in effects if sum(e.job_id == effect.job_id for e in effects) > 1})
        assert not doubled, f"took effect more than once: {doubled}"
        done = {effect.job_id: effect for effect in effects}
        for job_id in job_ids:
            details = self.show(job_id)
            assert details.job.state == JobState.COMPLETED, details
            assert job_id in done, f"completed without its effect: {details}"
            assert done[job_id].attempt == details.job.attempt
        self.store.check()

    def close(self) -> None:
        self.app.portal.call(self.app.close())
        self.app.portal.close()


class Workers:
    """Starts workers on the store of a test, and leaves none behind."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._programs: list[Program] = []

    def start(self, *, failpoints: str = "", **settings: Any) -> Program:
        """Start a worker with these settings."""
        settings = {"lease": self._store.lease, "poll_interval": 0.1, **settings}
        return self.program("tests.system.apps.worker_program", json.dumps(settings), HOLDFAST_FAILPOINTS=failpoints)

    def program(self, module: str, *arguments: str, **environment: str) -> Program:
        """Start any program on the store."""
        environment = {"HOLDFAST_URL": self._store.url, **environment}
        program = Program(module, *arguments, environment=environment)
        self._programs.append(program)
        return program

    def started(self, **settings: Any) -> Program:
        """Start a worker and wait until it runs."""
        program = self.start(**settings)
        program.line("worker .* is running on")
        return program

    def run_until_empty(self, **settings: Any) -> Program:
        """Let one worker do all that is left."""
        program = self.start(until_empty=True, **settings)
        assert program.end() == 0, program.text
        return program

    def close(self) -> None:
        for program in self._programs:
            program.close()
