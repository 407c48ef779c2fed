"""What the conductor notes of its processes, and what it asks of its faults."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.torture.events import Exited, FaultBegan
from holdfast.torture.failure import FaultFailed
from holdfast.torture.fleet import Fleet
from holdfast.torture.history import History, HistoryDamaged, Writer, process_name
from holdfast.torture.log import Log
from holdfast.torture.nemesis import broker, schedule
from holdfast.torture.nemesis.broker import KillBroker, StopBroker
from holdfast.torture.nemesis.commit import CutAtCommit, CutAtStatement
from holdfast.torture.nemesis.snapshot import HoldSnapshot
from holdfast.torture.plan import Fault, Profile, RunPlan, profile_of
from holdfast.torture.process_tree import ProcessIdentity, is_alive
from holdfast.torture.processes import Programs
from holdfast.torture.proxy import Proxy
from holdfast.torture.run_context import RunContext
from holdfast.torture.wire import WRITES

PROFILE = Profile(jobs=1, seconds=0.01, limit=1.0, drain=1.0, workers=1, producers=1, faults={Fault.TERM: 1})
SLOW_PLAN = RunPlan(name="smoke", profile=PROFILE, seed=1, lease=30.0)
PLAN = msgspec.structs.replace(SLOW_PLAN, lease=2.0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, "r", lambda _: None)


@pytest.fixture
def fleet(log: Log, tmp_path: Path) -> Fleet:
    return Fleet(PLAN, log, environment=lambda _: {}, folder=tmp_path, quiet=asyncio.Event())


def context_of(log: Log, **more: Any) -> Any:
    return msgspec.defstruct("AnyRunContext", [(name, Any) for name in ("plan", "log", *more)])(
        PLAN, log, *more.values()
    )


# --- processes --------------------------------------------------------------------------------------------------------

DEAF = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
signal.pause()
"""


async def deaf() -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DEAF, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def test_a_worker_that_does_not_end_when_asked_is_counted_before_it_is_killed(fleet: Fleet):
    (seat,) = fleet.seats
    seat.process = await deaf()
    assert await fleet.stop(within=0.05) == 1
    await fleet.kill()
    assert not is_alive(seat.pid)


async def test_a_program_that_does_not_end_when_asked_is_counted(log: Log, tmp_path: Path, monkeypatch):
    process = await deaf()

    async def made(*_: object, **__: object) -> asyncio.subprocess.Process:
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", made)
    crew = Programs(log, tmp_path)
    program = await crew.start("outside", "world", PROFILE, {})
    assert await crew.end([program], within=0.05) == 1
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "of_the_last"), [(0, (0, None)), (-signal.SIGKILL, (None, signal.SIGKILL)), (69, (None, None))]
)
async def test_how_a_process_below_a_worker_ended_is_noted_only_if_it_is_known(
    fleet: Fleet, log: Log, tmp_path: Path, code: int, of_the_last: tuple[int | None, int | None]
):
    early, last = ProcessIdentity(2**30, ""), ProcessIdentity(2**30 + 1, "")  # no process has such a number
    names = [process_name("worker", "w1", child.pid) for child in (early, last)]
    for name in names:
        (tmp_path / f"{name}.jsonl").touch()
    await fleet._until_gone(fleet.seats[0], {early: False, last: True}, code)
    log.close()

    found = {event.process: (event.code, event.signal) for _, event in History(tmp_path).of(Exited)}
    assert found == {names[0]: (None, None), names[1]: of_the_last}


async def test_a_stranger_that_has_got_the_number_of_a_child_is_left_alone(fleet: Fleet):
    """The numbers of processes come round; whoever has one now was perhaps never a descendant of a worker."""
    other = await deaf()
    was_here_before = ProcessIdentity(other.pid, "1")
    await fleet._until_gone(fleet.seats[0], {was_here_before: False}, -signal.SIGKILL)

    assert await fleet.stop(within=0) == 0
    await fleet.kill()

    assert is_alive(other.pid)
    other.kill()
    await other.wait()


class Ended:
    """A process that has ended as soon as it has begun."""

    pid = 2**30

    def __init__(self, code: int) -> None:
        self.returncode = code

    async def wait(self) -> int:
        return self.returncode


async def test_the_exit_of_a_worker_is_noted_although_an_earlier_one_had_its_number(
    fleet: Fleet, log: Log, tmp_path: Path, monkeypatch
):
    processes = iter([Ended(-signal.SIGTERM), Ended(-signal.SIGKILL)])

    async def made(*_: object, **__: object) -> Any:
        return next(processes)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", made)
    for _ in range(2):
        await fleet._sit(fleet.seats[0])
    log.close()

    assert [event.signal for _, event in History(tmp_path).of(Exited)] == [signal.SIGTERM, signal.SIGKILL]


async def test_workers_that_are_replaced_are_asked_in_the_history(fleet: Fleet, log: Log, tmp_path: Path):
    fleet.seats[0].ended.set()
    await fleet.replace()
    log.close()
    (began,) = [event for _, event in History(tmp_path).of(FaultBegan)]
    assert (began.fault, began.asks) == ("term", True)


def test_a_record_after_the_end_of_a_file_is_refused(tmp_path: Path):
    writer = Writer(tmp_path, run="r", role="worker", name="a")
    writer.close()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(HistoryDamaged, match="is closed"):
        writer.write(Exited(at_us=1, process="p"))
    os.close(other)


def test_a_full_disk_is_damage_of_the_history(tmp_path: Path, monkeypatch):
    writer = Writer(tmp_path, run="r", role="worker", name="a")

    def full(_descriptor: int, _ordering_scope: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(HistoryDamaged, match="No space left"):
        writer.write(Exited(at_us=1, process="p"))
    monkeypatch.undo()
    writer.close()


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TimeoutError(), StoreUnavailable("the server did not start")])
async def test_a_fault_that_cannot_be_done_ends_the_run_with_one_clear_error(log: Log, monkeypatch, error):
    class Failing:
        kind = Fault.TERM
        at_once = 1

        def why_not(self, _run: RunContext) -> str | None:
            return None

        async def inject(self, _run: RunContext, _chance: random.Random) -> bool:
            raise error

    monkeypatch.setattr(schedule, "INJECTORS", (Failing(),))
    with pytest.raises(FaultFailed, match="could not inject the fault term"):
        await schedule.Nemesis(context_of(log)).run()


def test_a_timeout_grows_with_the_lease():
    assert PLAN.scaled(60.0) == 60.0
    assert SLOW_PLAN.scaled(60.0) > 2 * SLOW_PLAN.lease


async def test_a_snapshot_that_could_not_be_opened_is_not_counted(log: Log):
    class Down:
        kind = "postgresql"

        def held_snapshot(self) -> Any:
            raise StoreUnavailable("down")

    assert not await HoldSnapshot().inject(context_of(log, target=Down()), random.Random(1))


@pytest.mark.parametrize("injector", [CutAtCommit(), CutAtStatement()])
def test_statements_cannot_be_cut_where_they_cannot_be_read(log: Log, injector: CutAtCommit):
    class Encrypted:
        def is_encrypted(self) -> bool:
            return True

    assert "TLS" in str(injector.why_not(context_of(log, proxy=object(), target=Encrypted())))


def test_every_store_has_its_share_of_cuts_at_statements_that_commit_by_themselves():
    assert profile_of("release", one_writer=False).faults[Fault.STATEMENT] >= 100


class Broker:
    """A broker that takes a moment to end and to start, and notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_down = False

    def kill(self) -> None:
        self._end("kill")

    def stop(self) -> None:
        self._end("stop")

    def _end(self, way: str) -> None:
        assert not self.is_down
        self.is_down = True
        time.sleep(0.01)
        self.done.append(way)

    def start(self) -> None:
        time.sleep(0.01)
        self.is_down = False
        self.done.append("start")


async def test_a_broker_that_is_down_is_not_taken_down_and_kills_and_stops_are_apart(
    log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker, "_LONGEST", 0.01)
    down = Broker()
    run = context_of(log, broker=down)

    done = await asyncio.gather(*(each.inject(run, random.Random(1)) for each in (KillBroker(), StopBroker())))
    assert done == [True, False]
    assert await StopBroker().inject(run, random.Random(1))

    assert down.done == ["kill", "start", "stop", "start"]
    log.close()
    began = [event for _, event in History(log.directory).of(FaultBegan)]
    assert [each.fault for each in began] == ["broker", "broker_stop"]


# --- the proxy --------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Any:
    proxy = Proxy("postgresql://127.0.0.1:1/x")
    yield proxy
    proxy.close()


def test_a_place_in_the_query_of_a_url_does_not_lead_around_the_proxy():
    proxy = Proxy("postgresql://me@/db?host=/run/pg&port=6000&schema=s")
    try:
        assert proxy._target == ("/run/pg", 6000)
        asked = psycopg.conninfo.conninfo_to_dict(proxy.url.replace("&schema=s", "").replace("?schema=s", ""))
        assert asked["host"] == "127.0.0.1"
        assert str(asked["port"]) != "6000"
    finally:
        proxy.close()


def test_several_hosts_are_refused():
    with pytest.raises(Unsupported, match="one host"):
        Proxy("postgresql://a,b/db")


def test_a_statement_within_a_transaction_does_not_commit_by_itself(proxy: Proxy):
    proxy.arm("after", WRITES, alone=True)
    assert proxy.cut_at("insert into job values (1)", is_alone=False) is None
    assert proxy.cut_at("select 1", is_alone=True) is None
    assert proxy.cut_at("with one as (select 1) insert into job select * from one", is_alone=True) == "after"
    assert (proxy.cuts, proxy.cuts_alone) == (1, 1)
    assert proxy.cut_within(0, alone=True)
    assert not proxy.cut_within(0)


def test_a_commit_and_a_statement_are_armed_side_by_side(proxy: Proxy):
    proxy.arm("before")
    proxy.arm("after", WRITES, alone=True)
    assert proxy.cut_at("COMMIT", is_alone=False) == "before"
    assert proxy.cut_at("update job set turn = 1", is_alone=True) == "after"
    assert (proxy.cuts, proxy.cuts_alone) == (2, 1)
