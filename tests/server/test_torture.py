"""200 workers over HTTP, while they and the server are killed: nothing is lost and nothing is doubled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.server.http_clients import ClientsSettings
from tests.server.processes import RunningServer, start_server
from tests.servers.postgres import drop_schema, own_schema

from holdfast import App
from holdfast.model.ids import new_id
from holdfast.torture.checker import check
from holdfast.torture.dump import dump
from holdfast.torture.events import (
    Clock,
    EnqueueAnswered,
    EnqueueCalled,
    EnqueueUnknown,
    RunBegan,
    Takes,
)
from holdfast.torture.history import now_us, process_name
from holdfast.torture.log import Log
from holdfast.torture.plan import Fault
from holdfast.torture.target import Target, target_of
from holdfast.torture.target.jobs import LEFT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(550)]

ROOT = Path(__file__).parents[2]
PROCESSES, CLIENTS = 4, 50
JOBS, BATCH = 1200, 10
LEASE = 8.0  # on a busy machine a request takes seconds: a shorter lease would expire before its work is done
QUEUE, TASK = "remote", "work"
FAULTS = (*(Fault.KILL, Fault.RESTART, Fault.KILL) * 5, Fault.STOP, Fault.STOP)
PAUSE = 1.0  # seconds between two faults
APART = 0.15  # seconds between two batches
MAX_ATTEMPTS = 30


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "sqlite":
        yield target_of(f"sqlite:///{tmp_path}/run.db?synchronous=normal")
        return
    with own_schema() as url:
        target = target_of(url)
        try:
            yield target
        finally:
            drop_schema(target.url)


class Seat:
    """Where a process of clients runs; it is filled again when that was killed."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.name = f"c{number}"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        settings = ClientsSettings(
            self.run.url, str(self.run.history), self.name, os.getpid(), CLIENTS, LEASE, QUEUE, TASK
        )
        command = [sys.executable, "-m", "tests.server.http_clients", msgspec.json.encode(settings).decode()]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths})

    @property
    def target(self) -> str:
        return process_name("worker", self.name, self.process.pid)

    async def kill(self) -> None:
        with self.run.log.fault(Fault.KILL, self.target):
            self.process.kill()
            code = await asyncio.to_thread(self.process.wait)
        self.run.log.exited_if_known(self.target, code)
        self.process = self.start()

    async def freeze(self) -> None:
        with self.run.log.fault(Fault.STOP, self.target):
            self.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE * 1.2)
            self.process.send_signal(signal.SIGCONT)


class Run:
    """The server, the clients, the producer and the faults."""

    def __init__(self, target: Target, history: Path) -> None:
        self.target = target
        self.history = history
        self.log = Log(history, "http", lambda _: None)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = self.serve()
        self.seats: list[Seat] = []
        self.kills = 0

    def serve(self) -> RunningServer:
        return start_server(self.target.url, port=self.port)

    async def restart(self) -> None:
        with self.log.fault(Fault.RESTART, "server", stalls=True):
            self.server.process.kill()
            await self.gone()
            self.server = await asyncio.to_thread(self.serve)
        self.kills += 1

    async def gone(self) -> None:
        await asyncio.to_thread(self.server.process.wait, 20)
        if self.server.process.stderr is not None:
            self.server.process.stderr.close()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        self.seats = [Seat(self, number) for number in range(PROCESSES)]
        try:
            yield
        finally:
            for seat in self.seats:
                seat.process.send_signal(signal.SIGCONT)
                seat.process.terminate()
            for seat in self.seats:
                self.log.exited_if_known(seat.target, await asyncio.to_thread(seat.process.wait, 60))
            self.server.process.terminate()
            await self.gone()

    async def produce(self) -> None:
        """Enqueue in batches; one whose answer was lost is repeated with the same ids."""
        async with httpx.AsyncClient(base_url=self.url, timeout=20) as http:
            for number in range(JOBS // BATCH):
                jobs = tuple(new_id() for _ in range(BATCH))
                attempt = 0
                while not await self.enqueued(http, f"{number}.{attempt}", jobs):
                    attempt += 1
                    await asyncio.sleep(0.2)
                await asyncio.sleep(APART)

    async def enqueued(self, http: httpx.AsyncClient, call: str, jobs: tuple[str, ...]) -> bool:
        self.log.writer.write(
            EnqueueCalled(
                at_us=now_us(),
                call=call,
                jobs=jobs,
                task=TASK,
                queue=QUEUE,
                takes=Takes.NOTHING,
                max_attempts=MAX_ATTEMPTS,
                size=len(jobs),
            )
        )
        items = [{"id": job, "task": TASK, "queue": QUEUE, "max_attempts": MAX_ATTEMPTS} for job in jobs]
        try:
            answer = await http.post("/v1/jobs/batch", json={"jobs": items})
            answer.raise_for_status()
        except httpx.HTTPError as error:
            self.log.writer.write(EnqueueUnknown(at_us=now_us(), call=call, jobs=jobs, error=type(error).__name__))
            return False
        new = tuple(job["created"] for job in answer.json()["jobs"])
        self.log.writer.write(EnqueueAnswered(at_us=now_us(), call=call, jobs=jobs, new=new))
        return True

    async def disturb(self) -> None:
        chance = random.Random(1)
        for fault in FAULTS:
            await asyncio.sleep(PAUSE)
            seat = chance.choice(self.seats)
            match fault:
                case Fault.KILL:
                    await seat.kill()
                case Fault.STOP:
                    await seat.freeze()
                case _:
                    await self.restart()

    async def drained(self) -> None:
        async with asyncio.timeout(300):
            while True:
                counts = await asyncio.to_thread(self.target.jobs.counts)
                self.clock()
                if not any(counts[state] for state in LEFT):
                    return
                await asyncio.sleep(0.5)

    def clock(self) -> None:
        sent_us = now_us()
        store_us = self.target.clock()
        self.log.writer.write(Clock(at_us=now_us(), store_us=store_us, sent_us=sent_us))


async def test_200_workers_over_http_lose_nothing_and_double_nothing(target: Target, tmp_path: Path):
    history = tmp_path / "history"
    history.mkdir()
    target.create()
    async with App(target.url):
        """Opening installs Holdfast's tables."""
    target.prepare()
    run = Run(target, history)
    began = RunBegan(
        at_us=now_us(),
        seed=1,
        store=target.store,
        lease_us=round(LEASE * 1e6),
        recovery_us=round((LEASE + 20) * 1e6),
        isolates=False,
        overtaking_us=0,
    )
    run.log.writer.write(began)
    run.clock()
    async with run.working():
        async with asyncio.TaskGroup() as group:
            group.create_task(run.produce())
            group.create_task(run.disturb())
        await run.drained()
    figures = dump(target, run.log, processes=0)
    run.log.close()

    verdict = check(history)

    assert verdict.is_clean, verdict.text()
    assert sum(figures.states.values()) == JOBS
    assert set(figures.states) <= {"completed", "failed"}
    assert figures.attempts.get("lost", 0) > 20  # the killed held leases
    assert run.kills == FAULTS.count(Fault.RESTART)
    judged = {tally.invariant: tally.checked for tally in verdict.tallies}
    assert all(judged[code] for code in ("I1", "I2", "I5", "I6", "I7", "I8", "I9", "I23")), verdict.text()
