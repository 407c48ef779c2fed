"""The processes of a mutant run: one producer and two workers, small ones, that are started again when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec
from tests.torture.mutants.patching import MissingTarget

from holdfast.runtime import failpoint
from holdfast.torture.history import process_name
from holdfast.torture.log import Log
from holdfast.torture.names import QUEUES
from holdfast.torture.process_tree import descendants
from holdfast.torture.programs.settings import ProducerSettings, WorkerProgramSettings
from holdfast.torture.recorder import HISTORY, NAME, ROLE, RUN
from holdfast.torture.target import Target
from holdfast.torture.urls import with_settings
from holdfast.torture.work.app import LEASE_VARIABLE, OUTSIDE, URL

JOBS = 120
RATE = 40.0  # a second
NO_MUTANT = 113  # the exit code of a process that could not become its mutant, and of no other
_PATIENCE = 30.0


class Seat:
    """A place for a worker."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process

    @property
    def target(self) -> str:
        return process_name("worker", self.name, self.process.pid)


class Crew:
    """Started on entry, gone on exit."""

    def __init__(
        self, log: Log, target: Target, history: Path, *, lease: float, seed: int, claims_directly: bool = False
    ) -> None:
        """`claims_directly`: the second seat is taken by a program that claims by itself."""
        self.log = log
        self.target = target
        self.lease = lease
        self.seats: list[Seat] = []
        self.proxy = target.proxy()
        self._seed = seed
        self._claims_directly = claims_directly
        self._history = history
        self._producer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.seats = [Seat(name, self._start_worker(name)) for name in ("w1", "w2")]
        settings = ProducerSettings(
            name="p1", parent=os.getpid(), seed=self._seed, jobs=JOBS, share=1.0, rate=RATE, lease=self.lease
        )
        self._producer = self._start("producer", "p1", settings)
        self.wait_for("claimed")
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self.seats:
            for pid in [*descendants(seat.process.pid), seat.process.pid]:
                send(pid, signal.SIGKILL)
            seat.process.wait()
        if self._producer is not None and self._producer.poll() is None:
            self._producer.kill()
            self._producer.wait()
        if self.proxy is not None:
            self.proxy.close()

    # --- processes --------------------------------------------------------------------------------------------------

    def _start(self, role: str, name: str, settings: msgspec.Struct, failpoints: str = "") -> subprocess.Popen[bytes]:
        url = self.target.url
        if self.proxy is not None:
            url = with_settings(self.proxy.url, reply_timeout="5", install="never")
        with (self._history / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", f"holdfast.torture.programs.{role}", msgspec.json.encode(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    URL: url,
                    OUTSIDE: "",
                    LEASE_VARIABLE: str(self.lease),
                    HISTORY: str(self._history),
                    RUN: "mutant",
                    ROLE: role,
                    NAME: name,
                    failpoint.VARIABLE: failpoints,
                },
            )

    def _start_worker(self, name: str, failpoints: str = "") -> subprocess.Popen[bytes]:
        settings = WorkerProgramSettings(
            name=name,
            parent=os.getpid(),
            lease=self.lease,
            queues=QUEUES,
            concurrency=5,
            prefetch_max=4,
            batch_max=20,
            claims_directly=self._claims_directly and name == "w2",
        )
        return self._start("worker", name, settings, failpoints)

    def restart(self, seat: Seat, failpoints: str = "") -> None:
        """Wait for the end of a worker, note it, and start the next one."""
        self.note_end(seat)
        seat.process = self._start_worker(seat.name, failpoints)

    def note_end(self, seat: Seat) -> None:
        children = descendants(seat.process.pid)
        code = seat.process.wait(_PATIENCE)
        if code == NO_MUTANT:
            raise MissingTarget((self._history / f"{seat.name}.log").read_text()[-500:])
        self.log.exited(seat.target, code)
        for pid in children:
            self.log.exited_if_known(process_name("worker", seat.name, pid), -signal.SIGKILL)

    def keep(self) -> None:
        """Fill the seats of workers that have ended by themselves."""
        for seat in self.seats:
            if seat.process.poll() is not None:
                self.restart(seat)

    def end(self) -> None:
        """Let all workers end in order."""
        for seat in self.seats:
            seat.process.terminate()
        for seat in self.seats:
            self.note_end(seat)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait_for(self, kind: str) -> None:
        """Wait until some worker has written a record of a kind."""
        marker = f'"kind":"{kind}"'.encode()
        give_up = time.monotonic() + _PATIENCE
        while not any(marker in path.read_bytes() for path in self._history.glob("worker-*.jsonl")):
            self.keep()
            if time.monotonic() > give_up:
                return  # a mutant that cannot even begin is judged by what it has done
            time.sleep(0.05)

    def until_working(self, seat: Seat) -> None:
        """Wait until the worker in a seat has claimed something, if there is anything to claim."""
        path = self._history / f"{seat.target}.jsonl"
        give_up = time.monotonic() + _PATIENCE / 4
        while time.monotonic() < give_up and not (path.exists() and b'"kind":"claimed"' in path.read_bytes()):
            time.sleep(0.05)

    def produce_all(self) -> None:
        """Wait until the producer has done its part, and end it."""
        producer = self._producer
        if producer is None:
            return
        give_up = time.monotonic() + JOBS / RATE + _PATIENCE / 2
        while producer.poll() is None and time.monotonic() < give_up and self._produced() < JOBS:
            self.keep()
            time.sleep(0.1)
        producer.terminate()
        with suppress(subprocess.TimeoutExpired):
            producer.wait(_PATIENCE)
        self.log.exited(process_name("producer", "p1", producer.pid), producer.returncode or 0)

    def _produced(self) -> int:
        lines = (self._history / "p1.log").read_bytes().splitlines()
        told = [line for line in lines if line.startswith(b'{"jobs"')]
        return int(msgspec.json.decode(told[-1])["jobs"]) if told else 0


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
