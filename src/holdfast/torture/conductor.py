"""Conducts a run: starts the processes, runs the nemesis, waits for the drain, and reads the store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.testing.kafka_server import KafkaServer
from holdfast.torture.draining import Draining
from holdfast.torture.events import Clock, ResumeAnswered, ResumeCalled, RunBegan, Snapshot
from holdfast.torture.failure import RunFailed
from holdfast.torture.fleet import Fleet
from holdfast.torture.history import HistoryDamaged, now_us
from holdfast.torture.log import Log
from holdfast.torture.names import PAUSED
from holdfast.torture.nemesis.schedule import Nemesis
from holdfast.torture.plan import RunPlan
from holdfast.torture.processes import Program, Programs
from holdfast.torture.programs.settings import Listening, OutsideSettings, Produced, ProducerSettings
from holdfast.torture.progress import RunPhase, RunProgress
from holdfast.torture.recorder import HISTORY, ROLE, RUN
from holdfast.torture.run_context import RunContext
from holdfast.torture.server import RunServer
from holdfast.torture.target import Target
from holdfast.torture.target.jobs import JobReader
from holdfast.torture.target.streams import StreamReader
from holdfast.torture.urls import with_settings
from holdfast.torture.work.app import EVENTS, LEASE_VARIABLE, OUTSIDE, URL

_SNAPSHOT_EVERY: Final = 1.0  # seconds
_SNAPSHOT_SHARE: Final = 20  # snapshots may take a twentieth of the time
_REPLY_TIMEOUT: Final = "5"  # seconds for a reply of the server, before a connection counts as broken
_ENDING: Final = 60.0  # seconds on an idle machine, as below
_DRAIN_POLL: Final = 0.5
_STARTING: Final = 60.0
_OVERTAKING: Final = 30.0


class Conductor:
    """One run on one store."""

    producing: ClassVar[str] = "producer"
    """The program that enqueues the jobs."""

    def __init__(
        self,
        plan: RunPlan,
        target: Target,
        *,
        history: Path,
        progress: RunProgress,
        server: RunServer | None = None,
        broker: KafkaServer | None = None,
    ) -> None:
        self.plan = plan
        self.target = target
        self.progress = progress
        self.history = history
        self.log = Log(history, plan.run, progress.event)
        self.reader = self._new_reader()
        self.began_at = 0.0
        self.fault_seconds = 0.0
        self.drain_seconds = 0.0
        self.is_drained = False
        self.processes_left = 0
        """The number of processes that did not exit in time after they were asked to."""
        self._server = server
        if server is not None:
            server.timeout = plan.scaled(server.timeout)
        self._logs = history / "logs"
        self._logs.mkdir()
        self._quiet = asyncio.Event()
        self._programs = Programs(self.log, self._logs)
        self._proxy = target.proxy()
        self._outside = ""
        self._fleet = self._new_fleet()
        self._context = RunContext(
            plan=plan, log=self.log, fleet=self._fleet, target=target, proxy=self._proxy, server=server, broker=broker
        )
        self.nemesis = Nemesis(self._context)
        progress.done, progress.wanted, progress.refused = self.log.done, self.nemesis.wanted, self.nemesis.refused

    def _new_reader(self) -> JobReader | StreamReader:
        return self.target.jobs

    def _new_fleet(self) -> Fleet:
        return Fleet(self.plan, self.log, environment=self._environment, folder=self._logs, quiet=self._quiet)

    @property
    def cuts(self) -> tuple[int, int, int]:
        """The number of reset connections, of cuts at a COMMIT, and of cuts at an autocommitted statement."""
        proxy = self._proxy
        return (0, 0, 0) if proxy is None else (proxy.links_cut, proxy.cuts - proxy.cuts_alone, proxy.cuts_alone)

    async def run(self) -> None:
        """Run until the end of the drain; the history then lacks only the final dump."""
        main: asyncio.Task[None] | None = None
        background: set[asyncio.Task[None]] = set()
        try:
            await self._prepare()
            background = {asyncio.create_task(self._fleet.run()), asyncio.create_task(self._watch())}
            main = asyncio.create_task(self._phases())
            # The fleet ends when it is stopped, near the end of the phases, or because its workers cannot work; the
            # watch task never ends by itself.
            while not main.done():
                done, _ = await asyncio.wait({main, *background}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & background:
                    background.discard(task)
                    task.result()
            await main
        finally:
            tasks = [*background, main] if main is not None else [*background]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._fleet.kill()
            await self._programs.kill()
            if self._proxy is not None:
                await asyncio.to_thread(self._proxy.close)

    # --- the phases -------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        async with self.target.app():
            """Opening installs Holdfast's tables."""
        await asyncio.to_thread(self.target.prepare)
        plan = self.plan
        self.log.writer.write(
            RunBegan(
                at_us=now_us(),
                seed=plan.seed,
                store=self.target.store,
                lease_us=round(plan.lease * 1_000_000),
                recovery_us=round(plan.recovery * 1_000_000),
                overtaking_us=round(_OVERTAKING * plan.slowness * 1_000_000),
                has_gaps=self.target.events is not None,
            )
        )
        await self._resume(within=self.plan.scaled(_STARTING))  # an aborted run may have left it paused
        await self._prepare_more()

    async def _prepare_more(self) -> None:
        """Start the outside server."""
        settings = OutsideSettings(name="world", parent=os.getpid())
        world = await self._programs.start("outside", "world", settings, self._environment(False))
        self._outside = msgspec.json.decode(await world.line(), type=Listening).url

    async def _phases(self) -> None:
        producers = await self._start_producers()
        await self._until_produced(producers)
        self.progress.phase = RunPhase.FAULTS
        self.began_at = time.monotonic()
        await self._inject_faults(producers)
        self.fault_seconds = time.monotonic() - self.began_at
        self.progress.phase = RunPhase.DRAINING
        self._stop_faults()
        ending = self.plan.scaled(_ENDING)
        self.processes_left += await self._programs.end(producers, within=ending)
        await self._resume(within=self.plan.drain)
        began = time.monotonic()
        self.is_drained = await self._drain()
        self.drain_seconds = time.monotonic() - began
        self.processes_left += await self._fleet.stop(within=ending)
        self.processes_left += await self._programs.end(self._programs.running(), within=ending)

    async def _start_producers(self) -> list[Program]:
        profile = self.plan.profile
        count = profile.producers
        found: list[Program] = []
        for number in range(1, count + 1):
            settings = ProducerSettings(
                name=f"p{number}",
                parent=os.getpid(),
                seed=self.plan.seed,
                jobs=profile.jobs // count,
                share=1 / count,
                rate=profile.jobs / count / profile.seconds,
                lease=self.plan.lease,
            )
            # Every other one connects through the proxy, so that its replies are lost too.
            environment = self._environment(number % 2 == 1)
            program = await self._programs.start(self.producing, settings.name, settings, environment)
            program.listen(self._produced(settings.name))
            found.append(program)
        return found

    async def _until_produced(self, producers: list[Program]) -> None:
        """Wait until every producer has enqueued something: before that a fault would hit nothing."""
        seconds = self.plan.scaled(_STARTING)
        give_up = time.monotonic() + seconds
        while sum(map(bool, self.progress.produced.values())) < len(producers):
            if time.monotonic() > give_up:
                names = {name for name, count in self.progress.produced.items() if count}
                idle = ", ".join(program.name for program in producers if program.name.split("-")[1] not in names)
                raise RunFailed(f"{idle} produced nothing within {seconds:g} s; see {self._logs}")
            for program in producers:
                program.require_alive()
            await asyncio.sleep(_DRAIN_POLL)  # polling interval

    def _produced(self, name: str) -> Callable[[bytes], None]:
        def take(line: bytes) -> None:
            self.progress.produced[name] = msgspec.json.decode(line, type=Produced).jobs

        return take

    async def _inject_faults(self, producers: list[Program]) -> None:
        """Run the nemesis until its counts are reached and all jobs are produced, or the time has passed."""
        profile = self.plan.profile
        injecting = asyncio.create_task(self.nemesis.run())
        give_up = self.began_at + self.plan.limit
        try:
            while time.monotonic() < give_up:
                if injecting.done():
                    injecting.result()
                    if self.progress.enqueued >= profile.jobs:
                        break
                for program in producers:
                    program.require_alive()
                await asyncio.sleep(0.1)  # several things may end this, and none of them is an event
        finally:
            self.log.over.set()
            injecting.cancel()
            (ended,) = await asyncio.gather(injecting, return_exceptions=True)
        if isinstance(ended, Exception):  # as it was aborted: a server that did not come back
            raise ended

    async def _resume(self, *, within: float) -> None:
        """Resume the queue that is paused at times: the last process that paused it may have been unable to."""
        give_up = time.monotonic() + within
        while True:
            try:
                async with self.target.app() as app:
                    sent_us = now_us()
                    self.log.writer.write(ResumeCalled(at_us=sent_us, queue=PAUSED))
                    await app.queues.resume(PAUSED)
                    self.log.writer.write(ResumeAnswered(at_us=now_us(), queue=PAUSED, sent_us=sent_us))
            except (StoreUnavailable, OutcomeUnknown) as error:
                if time.monotonic() > give_up:
                    raise RunFailed(f"the queue {PAUSED} could not be resumed within {within:g} s: {error}") from error
                await asyncio.sleep(_DRAIN_POLL)  # the store is unavailable
            else:
                return

    async def _drain(self) -> bool:
        """Without faults, every enqueued job must reach a final state, however long the store takes."""
        replacing = asyncio.create_task(self._replace_workers())
        draining = Draining(time.monotonic(), timeout=self.plan.drain)
        try:
            while not draining.is_stuck(time.monotonic()):
                await asyncio.sleep(_DRAIN_POLL)  # polling interval
                if not await asyncio.to_thread(self._snapshot):
                    continue
                if not self.progress.left:
                    break
                draining.update(time.monotonic(), self.progress.left)
        finally:
            replacing.cancel()
            (replaced,) = await asyncio.gather(replacing, return_exceptions=True)
        if isinstance(replaced, Exception):
            raise replaced
        return not self.progress.left

    def _stop_faults(self) -> None:
        """End all faults that are still in progress."""
        self._quiet.set()
        if self._proxy is not None:
            self._proxy.heal()
        for seat in self._fleet.seats:
            seat.send(signal.SIGCONT)

    async def _replace_workers(self) -> None:
        await self._fleet.replace()

    # --- snapshots -------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Take snapshots of the store periodically; less often where they are expensive."""
        seen = 0
        while True:
            began = time.monotonic()
            self.progress.workers = len(self._fleet.running())
            self.progress.started, self.progress.deaths = self._fleet.started, self._fleet.deaths
            if self.progress.phase is RunPhase.FAULTS:
                seen = await asyncio.to_thread(self._count_duplicates, seen)
                await asyncio.to_thread(self._snapshot)
            cost = time.monotonic() - began
            await asyncio.sleep(max(_SNAPSHOT_EVERY, _SNAPSHOT_SHARE * cost))  # polling interval

    def _snapshot(self) -> bool:
        """Take a snapshot; False if the store is unavailable, which is allowed."""
        try:
            sent_us = now_us()
            self.progress.counts = counts = self.reader.counts()
            self.log.writer.write(Snapshot(at_us=now_us(), counts=counts, sent_us=sent_us))
            sent_us = now_us()
            store_us = self.target.clock()
            self.log.writer.write(Clock(at_us=now_us(), store_us=store_us, sent_us=sent_us))
        except HistoryDamaged:
            raise  # not a failure of the store
        except Exception as error:  # noqa: BLE001 - of either driver, or of Holdfast: faults are injected
            self.log.show(f"no snapshot of the store: {type(error).__name__}")
            return False
        return True

    def _count_duplicates(self, seen: int) -> int:
        try:
            last, doubled = self.reader.effects_seen(seen)
        except Exception:  # noqa: BLE001 - as above
            return seen
        self.progress.doubled += doubled
        return last

    # --- environment -----------------------------------------------------------------------------------------------

    def _environment(self, proxied: bool) -> dict[str, str]:
        url = self.target.url
        if self._proxy is not None:
            url = with_settings(self._proxy.url if proxied else url, reply_timeout=_REPLY_TIMEOUT, install="never")
        return {
            URL: url,
            OUTSIDE: self._outside,
            LEASE_VARIABLE: str(self.plan.lease),
            HISTORY: str(self.history),
            RUN: self.plan.run,
            ROLE: "worker",
            EVENTS: "" if self.target.events is None else self.target.events.url,
        }
