"""What counts as a kill: a death of it, and each death once."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.torture.events import Exited
from holdfast.torture.fleet import Armed, FleetSeat
from holdfast.torture.history import History
from holdfast.torture.log import Log
from holdfast.torture.nemesis import kill
from holdfast.torture.nemesis.kill import Kill
from holdfast.torture.plan import RunPlan
from holdfast.torture.process_tree import is_alive
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.streams.profiles import stream_profile_of

PLAN = RunPlan(name="smoke", profile=stream_profile_of("smoke", one_writer=True), seed=1, lease=2.0)
NOBODY = 2**30  # no process has such a number
KILLED = -signal.SIGKILL


class Dying(msgspec.Struct):
    """A process as a seat knows it: how it ended is told later."""

    pid: int
    returncode: int | None = None


def sit(seat: FleetSeat, pid: int) -> None:
    process: Any = Dying(pid)
    seat.process, seat.ended = process, asyncio.Event()


class Fleet:
    """Seats whose processes end only when a test says so."""

    def __init__(self, *pids: int) -> None:
        self.seats = [FleetSeat(number) for number in range(1, len(pids) + 1)]
        for seat, pid in zip(self.seats, pids, strict=True):
            sit(seat, pid)

    def running(self) -> list[FleetSeat]:
        return [seat for seat in self.seats if seat.is_running]

    def end(self, seat: FleetSeat, code: int) -> None:
        process: Any = seat.process
        process.returncode = code
        seat.ended.set()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, "r", lambda _: None)


@pytest.fixture
async def sleeping() -> AsyncGenerator[Callable[[], Any]]:
    """Return what starts a process that does nothing."""
    started: list[asyncio.subprocess.Process] = []

    async def start() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "60")
        started.append(process)
        return process.pid

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


def context(log: Log, fleet: Fleet) -> Any:
    return SimpleNamespace(plan=PLAN, log=log, fleet=fleet)


async def begun(injection: Any) -> asyncio.Task[bool]:
    """Start an injection and let it reach the wait for its victim."""
    task: asyncio.Task[bool] = asyncio.ensure_future(injection)
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(("code", "counts"), [(KILLED, True), (0, False), (-signal.SIGTERM, False), (1, False)])
async def test_a_kill_counts_only_if_the_process_died_of_it(log: Log, sleeping, code, counts):
    fleet = Fleet(await sleeping())
    injecting = await begun(Kill().inject(context(log, fleet), random.Random(1)))
    fleet.end(fleet.seats[0], code)

    assert await injecting is counts


async def test_a_process_that_had_ended_before_was_not_killed_by_us(log: Log):
    fleet = Fleet(NOBODY)
    injecting = await begun(Kill().inject(context(log, fleet), random.Random(1)))
    fleet.end(fleet.seats[0], KILLED)  # by somebody else, and not told yet

    assert not await injecting


async def test_two_kills_at_once_do_not_choose_the_same_seat(log: Log, sleeping):
    fleet = Fleet(await sleeping(), await sleeping())
    injector = Kill()
    kills = [await begun(injector.inject(context(log, fleet), random.Random(1))) for _ in range(2)]
    third = await begun(injector.inject(context(log, fleet), random.Random(1)))

    assert third.done()  # there is nobody left
    assert not await third
    for seat in fleet.seats:
        fleet.end(seat, KILLED)
    assert await asyncio.gather(*kills) == [True, True]


async def test_whoever_follows_in_a_seat_can_be_killed_too(log: Log, sleeping):
    fleet = Fleet(await sleeping())
    (seat,) = fleet.seats
    injector = Kill()
    for _ in range(2):
        injecting = await begun(injector.inject(context(log, fleet), random.Random(1)))
        fleet.end(seat, KILLED)

        assert await injecting
        sit(seat, await sleeping())


@pytest.mark.parametrize("seed", range(4))
async def test_who_is_to_die_at_a_failpoint_is_left_to_it(log: Log, sleeping, seed):
    fleet = Fleet(NOBODY, await sleeping())
    fleet.seats[0].armed = Armed(failpoints="after_commit=kill@1")
    injecting = await begun(Kill().inject(context(log, fleet), random.Random(seed)))
    fleet.end(fleet.seats[1], KILLED)

    assert await injecting


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_worker_under_a_supervisor_counts_if_it_was_alive(log: Log, sleeping, tmp_path, monkeypatch, is_there):
    pid = await sleeping() if is_there else NOBODY
    fleet = Fleet(await sleeping())
    fleet.seats[0].settings = WorkerProgramSettings(name="w1", parent=1, lease=2.0, queues=(), processes=2)
    (tmp_path / f"worker-w1-{pid}.jsonl").touch()
    monkeypatch.setattr(kill, "descendants", lambda _: [pid])
    chance = random.Random(2)
    monkeypatch.setattr(chance, "random", lambda: 0.0)

    assert await Kill().inject(context(log, fleet), chance) is is_there
    assert not is_alive(pid)
    assert is_alive(fleet.seats[0].pid)
    log.close()
    noted = [(event.process, event.signal) for _, event in History(tmp_path).of(Exited)]
    assert noted == ([(f"worker-w1-{pid}", signal.SIGKILL)] if is_there else [])
