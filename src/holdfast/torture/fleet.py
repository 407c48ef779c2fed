"""The workers of a run: seats that are filled again whenever their worker exits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from holdfast.runtime import failpoint
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed
from holdfast.torture.history import SUFFIX, process_name
from holdfast.torture.log import Log
from holdfast.torture.names import QUEUES, USUAL
from holdfast.torture.plan import Fault, RunPlan
from holdfast.torture.process_tree import ProcessIdentity, descendants, identify
from holdfast.torture.programs.settings import WorkerProgramSettings

_SUPERVISED = 0.25
_RARE_QUEUE = 0.2
_PROXIED = 0.6
_DIRECT = 0.25
_POINTS_OF_ALL = ("before_effect", "after_effect", "before_commit", "after_commit")  # in any process that runs the job
_ROOM = 5
_QUICK = 3.0  # seconds: a worker that exits by itself sooner is broken
_MOST_QUICK = 8  # in a row
_BACK_OFF = 1.0


class FleetBroken(RunFailed):
    """Workers exit repeatedly without a fault."""


class Armed(msgspec.Struct, frozen=True):
    """The fault for the next worker to start: a failpoint, or a wrong clock."""

    failpoints: str = ""
    skew: float = 0.0


class FleetSeat:
    """A slot for a worker, and its current worker."""

    def __init__(self, number: int) -> None:
        self.name = f"w{number}"
        self.may_claim_directly = number % 2 == 0  # the others must be workers: a direct claim loop rescues nothing
        self.has_claimed_directly = False
        self.process: asyncio.subprocess.Process | None = None
        self.settings: WorkerProgramSettings | None = None
        self.armed = Armed()
        self.is_stopped = False
        self.was_hit = False
        """Whether the nemesis ended the current worker, or armed a fault that will."""
        self.is_asked = False
        """Whether the current worker was asked to shut down."""
        self.ended = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether a worker is running here."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        """The process id of the current worker."""
        return 0 if self.process is None else self.process.pid

    @property
    def target(self) -> str:
        """The name of the current worker in the history."""
        return process_name("worker", self.name, self.pid)

    def ask(self) -> None:
        """Ask the worker to shut down, unless it has exited."""
        self.is_asked = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the worker, unless it has exited."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Fleet:
    """Keeps its seats filled until it is stopped."""

    module: ClassVar[str] = "holdfast.torture.programs.worker"
    failpoints: ClassVar[tuple[str, ...]] = failpoint.NAMES
    """The points at which a worker can be killed."""

    def __init__(
        self,
        plan: RunPlan,
        log: Log,
        *,
        environment: Callable[[bool], dict[str, str]],
        folder: Path,
        quiet: asyncio.Event,
    ) -> None:
        """`environment` returns the environment of a worker; True asks for the connection through the proxy."""
        self._plan = plan
        self._log = log
        self._environment = environment
        self._folder = folder
        self._quiet = quiet
        self._chance = plan.chance("fleet")
        self.seats = [FleetSeat(number) for number in range(1, plan.profile.workers + 1)]
        self.waiting: list[Armed] = []
        """The faults armed for the next workers."""
        self.started = 0
        self.deaths = 0
        self._is_stopping = False
        self._quick_ends = 0
        self._left: set[ProcessIdentity] = set()
        """Processes that outlived their worker."""

    @property
    def chance(self) -> random.Random:
        """The fleet's own random generator."""
        return self._chance

    def running(self) -> list[FleetSeat]:
        """Return the seats whose worker runs and is not stopped."""
        return [seat for seat in self.seats if seat.is_running and not seat.is_stopped]

    async def run(self) -> None:
        """Keep all seats filled until stopped."""
        keeping = [asyncio.create_task(self._keep(seat)) for seat in self.seats]
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)

    async def stop(self, *, within: float) -> int:
        """Shut all workers down; return how many processes still run after the time limit."""
        self._is_stopping = True
        for seat in self.seats:
            seat.send(signal.SIGCONT)
            seat.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                for seat in self.seats:
                    await seat.ended.wait()
        running = [seat.pid for seat in self.seats if seat.is_running]
        return len({*running, *(pid for worker in running for pid in descendants(worker)), *self._survivors()})

    def _survivors(self) -> list[int]:
        """Return the processes that should have exited with their worker."""
        return [child.pid for child in self._left if child.is_running]

    async def replace(self) -> None:
        """Ask every worker to shut down, one after another; their successors know all tasks and have free slots."""
        for seat in self.seats:
            seat.was_hit = True
            ended = seat.ended
            with self._log.fault(Fault.TERM, seat.target, "SIGTERM, after the faults", asks=True):
                seat.ask()
                await ended.wait()

    async def kill(self) -> None:
        """Kill all processes."""
        self._is_stopping = True
        for seat in self.seats:
            if seat.process is not None and seat.process.returncode is None:
                for pid in [*descendants(seat.pid), seat.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await seat.process.wait()
        for pid in self._survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _keep(self, seat: FleetSeat) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            began = loop.time()
            await self._sit(seat)
            code = seat.process.returncode if seat.process else None
            is_refusal = code == ExitCode.CONFIGURATION  # reported by the worker itself: no retry will change it
            if code == ExitCode.UNAVAILABLE and not self._is_stopping:  # the server is down, as it is at times
                await asyncio.sleep(_BACK_OFF)  # as a supervisor would: a start takes a CPU second
                continue
            has_begun = (self._log.directory / f"{seat.target}{SUFFIX}").exists()  # however long a start may take
            lasted = has_begun and loop.time() - began > _QUICK * self._plan.slowness
            if not is_refusal and (seat.was_hit or lasted):
                if has_begun:  # a fault during the start does not show that the worker can work
                    self._quick_ends = 0
                continue
            self._quick_ends += 1
            if (is_refusal or self._quick_ends > _MOST_QUICK) and not self._is_stopping:
                raise FleetBroken(
                    f"workers exit as soon as they have started, last {seat.name} with code {code}; "
                    f"see {self._folder / (seat.name + '.log')}"
                )

    async def _sit(self, seat: FleetSeat) -> None:
        """Run one worker until it exits."""
        seat.armed = self._take_armed()
        seat.settings = settings = self._settings(seat)
        seat.was_hit = bool(seat.armed.failpoints)
        seat.is_stopped = seat.is_asked = False
        seat.ended = asyncio.Event()
        proxied = not self._quiet.is_set() and self._chance.random() < _PROXIED
        environment = {**self._environment(proxied), failpoint.VARIABLE: seat.armed.failpoints}
        with (self._folder / f"{seat.name}.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", self.module, msgspec.json.encode(settings).decode()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment, "HOLDFAST_TORTURE_NAME": seat.name},
            )
        seat.process = process
        self._log.began(seat.target)
        self.started += 1
        if self._is_stopping:  # stopped while the process was being created
            seat.ask()
        children: dict[ProcessIdentity, bool] = {}
        code = await self._watched(seat, process, children)
        self._log.exited(seat.target, code)
        if code < 0:
            self.deaths += 1
        await self._until_gone(seat, children, code)
        seat.ended.set()

    @staticmethod
    async def _watched(
        seat: FleetSeat, process: asyncio.subprocess.Process, children: dict[ProcessIdentity, bool]
    ) -> int:
        """Wait until a worker exits; record its descendants, and whether each existed until then.

        A descendant that exited after the worker was asked to shut down counts as asked too: by the worker.
        """
        while True:
            if not seat.is_asked:
                children.update(dict.fromkeys(children, False))
            children.update(dict.fromkeys(map(identify, descendants(process.pid)), True))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    return await asyncio.shield(process.wait())

    async def _until_gone(self, seat: FleetSeat, children: dict[ProcessIdentity, bool], code: int) -> None:
        """Wait until the descendants of a dead worker are gone, and record their exits.

        None of them is our child. One that existed until the end was killed with its worker, or exited cleanly if the
        worker did (whose code is the worst of theirs); how the others exited is unknown here.
        """
        for _ in range(100):
            if not any(child.is_running for child in children):
                break
            await asyncio.sleep(0.05)  # their exit is no event here: their parent is gone
        of_the_last = -signal.SIGKILL if code < 0 else 0 if code == ExitCode.FINE else None
        for child, was_last in children.items():
            if child.is_running:
                self._left.add(child)
                continue
            name = process_name("worker", seat.name, child.pid)
            self._log.exited_if_known(name, of_the_last if was_last else None)

    def _take_armed(self) -> Armed:
        return self.waiting.pop(0) if self.waiting and not self._quiet.is_set() else Armed()

    def _settings(self, seat: FleetSeat) -> WorkerProgramSettings:
        chance, quiet = self._chance, self._quiet.is_set()
        knows = quiet or chance.random() < _RARE_QUEUE
        size = chance.choice((5, 10, 20))
        claims_directly = self._claims_directly(seat)
        return WorkerProgramSettings(
            name=seat.name,
            parent=os.getpid(),
            lease=self._plan.lease,
            queues=QUEUES if knows else USUAL,
            processes=2 if chance.random() < _SUPERVISED and not (claims_directly or seat.armed.failpoints) else 1,
            concurrency=_ROOM if quiet else chance.choice((2, 3, 4)),
            prefetch_max=size,
            batch_max=size,
            knows_rare_task=knows,
            skew=0.0 if quiet else seat.armed.skew,
            claims_directly=claims_directly,
        )

    def _claims_directly(self, seat: FleetSeat) -> bool:
        """Draw whether a direct claim loop runs here; in every run one does at first."""
        points = seat.armed.failpoints
        if self._quiet.is_set() or not seat.may_claim_directly or (points and not points.startswith(_POINTS_OF_ALL)):
            return False
        is_first, seat.has_claimed_directly = not seat.has_claimed_directly, True
        return is_first or self._chance.random() < _DIRECT
