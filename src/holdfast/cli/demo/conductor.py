"""Starts workers, kills some of them at random and restarts them, until no job is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import msgspec

from holdfast.cli.demo.child import URL, DemoSettings
from holdfast.cli.demo.worker import DemoReport
from holdfast.errors import HoldfastError

_CHILD = "holdfast.cli.demo.child"
_EARLIEST, _LATEST = 0.1, 0.8  # the part of the run in which workers are killed
_KILL_WITHIN = 0.03  # seconds: about the duration of a batch
_EXIT_TIMEOUT = 10.0  # seconds for the last batch of a worker
_MOST_CRASHES = 5  # of one seat, without being killed


class DemoBroken(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A worker crashes repeatedly without being killed by the demo."""


class SeatState(StrEnum):
    """The state of a seat's worker."""

    STARTING = "starting"
    WORKING = "working"
    WAITING = "waiting"
    KILLED = "killed"
    ENDED = "ended"


class DemoSeat:
    """A slot for a worker process, with the total counters of all workers that ran in it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.state = SeatState.STARTING
        self.killed = 0
        self.is_doomed = False
        self.crashes = 0
        self.last_stderr = ""
        self.past = DemoReport()
        self.present = DemoReport()

    @property
    def total(self) -> DemoReport:
        """The counters of this seat: those of the current worker and of its predecessors."""
        past, present = self.past, self.present
        return DemoReport(
            done=past.done + present.done,
            failed_attempts=past.failed_attempts + present.failed_attempts,
            given_up=past.given_up + present.given_up,
            rescued=past.rescued + present.rescued,
            lost=past.lost + present.lost,
            holding=present.holding,
            is_waiting=present.is_waiting,
            used_attempts=dict(Counter(past.used_attempts) + Counter(present.used_attempts)),
        )

    def vacated(self) -> None:
        """Add the counters of a worker that has exited to the past ones."""
        self.past, self.present = self.total, DemoReport()
        self.past.holding = 0


class Killings:
    """Decides when to kill which worker: at random points of the run, one that holds leases.

    A worker reports the jobs that it has claimed. It is killed a random moment later, so that the kill may hit any
    point of a batch: before the effects are written, before the commit, or right after it.
    """

    def __init__(self, count: int, jobs: int, chance: random.Random) -> None:
        shares = (_EARLIEST + (_LATEST - _EARLIEST) * chance.random() for _ in range(count))
        self._points = sorted((round(share * jobs) for share in shares), reverse=True)
        self._chance = chance
        self._victim: DemoSeat | None = None

    @property
    def delay(self) -> float:
        """The seconds between a worker's report and the kill."""
        return _KILL_WITHIN * self._chance.random()

    def is_due(self, ended: int, seat: DemoSeat, seats: list[DemoSeat]) -> bool:
        """Return whether to kill the worker that has just reported."""
        if not self._points or ended < self._points[-1]:
            return False
        living = [
            other for other in seats if other.state in {SeatState.WORKING, SeatState.WAITING} and not other.is_doomed
        ]
        if self._victim not in living:
            self._victim = self._chance.choice(living) if living else None
        if self._victim is not seat or not seat.present.holding:
            return False
        self._points.pop()
        self._victim = None
        seat.is_doomed = True
        return True


class DemoConductor:
    """The workers of one session."""

    def __init__(
        self,
        url: str,
        *,
        workers: int,
        batch_size: int,
        killings: Killings,
        ended_before: int,
        on_event: Callable[[str], None],
    ) -> None:
        self.seats = [DemoSeat(number) for number in range(1, workers + 1)]
        self.killed = 0
        self._url = url
        self._batch_size = batch_size
        self._killings = killings
        self._ended_before = ended_before
        self._on_event = on_event
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self.is_stopping = False

    @property
    def ended(self) -> int:
        """How many jobs have ended according to the workers' reports."""
        totals = [seat.total for seat in self.seats]
        return self._ended_before + sum(total.done + total.given_up for total in totals)

    async def run(self, refresh: Callable[[], None], *, every: float) -> None:
        """Keep a worker in every seat until no job is left or `stop` is called; call `refresh` periodically."""
        tasks = {asyncio.create_task(self._keep(seat)) for seat in self.seats}
        try:
            waiting = tasks
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=every, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                refresh()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for process in list(self._processes.values()):
                _send(process, signal.SIGKILL)
                await process.wait()

    def stop(self) -> None:
        """Stop every worker after its current batch; a second call kills them."""
        number = signal.SIGKILL if self.is_stopping else signal.SIGTERM
        self.is_stopping = True
        for process in self._processes.values():
            _send(process, number)

    async def _keep(self, seat: DemoSeat) -> None:
        while not self.is_stopping:
            code = await self._sit(seat)
            seat.vacated()
            if code == 0:
                break
            if seat.state is SeatState.KILLED:
                continue
            seat.crashes += 1
            if seat.crashes >= _MOST_CRASHES and not self.is_stopping:
                message = (
                    f"worker {seat.number} has crashed {seat.crashes} times, last with exit code {code}: "
                    f"{seat.last_stderr}"
                )
                raise DemoBroken(message)
        seat.state = SeatState.ENDED

    async def _sit(self, seat: DemoSeat) -> int:
        """Run one worker until it exits; return its exit code."""
        settings = DemoSettings(f"worker-{seat.number}", self._batch_size)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _CHILD,
            msgspec.json.encode(settings).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,  # its output must not disturb the display
            env={**os.environ, URL: self._url},
        )
        self._processes[seat.number] = process
        seat.pid, seat.state, seat.is_doomed = process.pid, SeatState.STARTING, False
        if self.is_stopping:  # `stop` was called while the process was being created
            _send(process, signal.SIGTERM)
        words = asyncio.create_task(self._listen(seat, process))
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe, see above
            async for line in process.stdout:
                self._take(seat, process, line)
            await words
            async with asyncio.timeout(_EXIT_TIMEOUT):
                return await process.wait()
        finally:
            words.cancel()
            if process.returncode is not None:
                del self._processes[seat.number]

    @staticmethod
    async def _listen(seat: DemoSeat, process: asyncio.subprocess.Process) -> None:
        """Keep the last line that a worker writes to stderr."""
        assert process.stderr is not None  # noqa: S101 - a pipe
        async for line in process.stderr:
            seat.last_stderr = line.decode(errors="replace").strip()

    def _take(self, seat: DemoSeat, process: asyncio.subprocess.Process, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=DemoReport)
        except msgspec.DecodeError:
            return  # an incomplete line: the worker was killed while it wrote
        seat.present = report
        if seat.state is SeatState.KILLED:
            return
        seat.state = SeatState.WAITING if report.is_waiting else SeatState.WORKING
        if not self.is_stopping and self._killings.is_due(self.ended, seat, self.seats):
            asyncio.get_running_loop().call_later(self._killings.delay, self._kill, seat, process)

    def _kill(self, seat: DemoSeat, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None or seat.pid != process.pid or self.is_stopping:
            return  # the worker has exited by itself
        _send(process, signal.SIGKILL)
        seat.state = SeatState.KILLED
        seat.killed += 1
        self.killed += 1
        held = seat.present.holding
        what = f"while it held {held:,} jobs" if held else "between two batches"
        self._on_event(f"worker {seat.number} (pid {process.pid}) was killed {what}")


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has exited."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
