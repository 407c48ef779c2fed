"""Starts consumers, kills some of them at random, and starts those anew, until nothing is left."""

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
from holdfast.cli.demo.consumer import ConsumerReport
from holdfast.errors import HoldfastError

_CHILD = "holdfast.cli.demo.child"
_EARLIEST, _LATEST = 0.1, 0.8  # between which shares of the run consumers are killed
_BLOW_WITHIN = 0.03  # seconds: about as long as a batch takes
_PATIENCE = 10.0  # seconds that a consumer may take for its last batch
_MOST_DEATHS = 5  # of one consumer, by its own fault


class ConsumerBroken(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A consumer ends again and again without being killed."""


class SeatState(StrEnum):
    """What a seat's consumer does."""

    STARTING = "starting"
    WORKING = "working"
    WAITING = "waiting"
    KILLED = "killed"
    ENDED = "ended"


class DemoSeat:
    """A place for a consumer, and what all that sat there have done."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.state = SeatState.STARTING
        self.killed = 0
        self.is_doomed = False
        self.deaths = 0
        self.last_words = ""
        self.past = ConsumerReport()
        self.present = ConsumerReport()

    @property
    def total(self) -> ConsumerReport:
        """What was done here, by the present consumer and those before it."""
        past, present = self.past, self.present
        return ConsumerReport(
            done=past.done + present.done,
            failed_tries=past.failed_tries + present.failed_tries,
            given_up=past.given_up + present.given_up,
            rescued=past.rescued + present.rescued,
            lost=past.lost + present.lost,
            holding=present.holding,
            is_waiting=present.is_waiting,
            tries=dict(Counter(past.tries) + Counter(present.tries)),
        )

    def vacated(self) -> None:
        """Note that the present consumer is gone."""
        self.past, self.present = self.total, ConsumerReport()
        self.past.holding = 0


class Killings:
    """When to kill which consumer: at random points of the run, one that holds works.

    A consumer tells that it holds works when it has claimed them. The blow falls at a random moment after that, so that
    each point of a batch may be the last: before the effects are written, before the commit, or right after it.
    """

    def __init__(self, count: int, jobs: int, chance: random.Random) -> None:
        shares = (_EARLIEST + (_LATEST - _EARLIEST) * chance.random() for _ in range(count))
        self._points = sorted((round(share * jobs) for share in shares), reverse=True)
        self._chance = chance
        self._victim: DemoSeat | None = None

    @property
    def delay(self) -> float:
        """The seconds from a consumer's report to its end."""
        return _BLOW_WITHIN * self._chance.random()

    def is_due(self, ended: int, seat: DemoSeat, seats: list[DemoSeat]) -> bool:
        """Tell whether the consumer that has just reported is to be killed now."""
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
    """The consumers of one session."""

    def __init__(
        self,
        url: str,
        *,
        consumers: int,
        batch_size: int,
        killings: Killings,
        ended_before: int,
        told: Callable[[str], None],
    ) -> None:
        self.seats = [DemoSeat(number) for number in range(1, consumers + 1)]
        self.killed = 0
        self._url = url
        self._batch_size = batch_size
        self._killings = killings
        self._ended_before = ended_before
        self._told = told
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self.is_stopping = False

    @property
    def ended(self) -> int:
        """How many works have ended, as far as the consumers have told."""
        totals = [seat.total for seat in self.seats]
        return self._ended_before + sum(total.done + total.given_up for total in totals)

    async def run(self, refresh: Callable[[], None], *, every: float) -> None:
        """Keep every seat taken until nothing is left, or until stopped; call `refresh` now and then."""
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
        """Let each consumer end after the batch in its hands; called again: kill them."""
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
            seat.deaths += 1
            if seat.deaths >= _MOST_DEATHS and not self.is_stopping:
                message = (
                    f"consumer {seat.number} has ended {seat.deaths} times by itself, last with exit code {code}: "
                    f"{seat.last_words}"
                )
                raise ConsumerBroken(message)
        seat.state = SeatState.ENDED

    async def _sit(self, seat: DemoSeat) -> int:
        """Run one consumer to its end; return its exit code."""
        settings = DemoSettings(f"consumer-{seat.number}", self._batch_size)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _CHILD,
            msgspec.json.encode(settings).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,  # what it says there must not break into the picture
            env={**os.environ, URL: self._url},
        )
        self._processes[seat.number] = process
        seat.pid, seat.state, seat.is_doomed = process.pid, SeatState.STARTING, False
        if self.is_stopping:  # asked while the process came into being
            _send(process, signal.SIGTERM)
        words = asyncio.create_task(self._listen(seat, process))
        try:
            assert process.stdout is not None  # noqa: S101 - asked for above
            async for line in process.stdout:
                self._take(seat, process, line)
            await words
            async with asyncio.timeout(_PATIENCE):
                return await process.wait()
        finally:
            words.cancel()
            if process.returncode is not None:
                del self._processes[seat.number]

    @staticmethod
    async def _listen(seat: DemoSeat, process: asyncio.subprocess.Process) -> None:
        """Keep the last line that a consumer writes to stderr."""
        assert process.stderr is not None  # noqa: S101 - asked for
        async for line in process.stderr:
            seat.last_words = line.decode(errors="replace").strip()

    def _take(self, seat: DemoSeat, process: asyncio.subprocess.Process, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=ConsumerReport)
        except msgspec.DecodeError:
            return  # the last line of a consumer that was killed while it wrote
        seat.present = report
        if seat.state is SeatState.KILLED:
            return
        seat.state = SeatState.WAITING if report.is_waiting else SeatState.WORKING
        if not self.is_stopping and self._killings.is_due(self.ended, seat, self.seats):
            asyncio.get_running_loop().call_later(self._killings.delay, self._kill, seat, process)

    def _kill(self, seat: DemoSeat, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None or seat.pid != process.pid or self.is_stopping:
            return  # it has ended by itself meanwhile
        _send(process, signal.SIGKILL)
        seat.state = SeatState.KILLED
        seat.killed += 1
        self.killed += 1
        held = seat.present.holding
        what = f"while it held {held:,} works" if held else "between two batches"
        self._told(f"consumer {seat.number} (pid {process.pid}) was killed {what}")


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process, unless it has ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
