"""Conducts a stream run: appenders instead of producers, nodes instead of workers, shares instead of jobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar, Final

from holdfast.testing.kafka_server import KafkaServer
from holdfast.torture.conductor import Conductor
from holdfast.torture.events import Clock
from holdfast.torture.fleet import Fleet, FleetSeat
from holdfast.torture.history import HistoryDamaged, now_us
from holdfast.torture.plan import RunPlan
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.progress import RunProgress
from holdfast.torture.server import RunServer
from holdfast.torture.streams.names import PARTITIONS
from holdfast.torture.streams.records import FaultsOver
from holdfast.torture.target import Target
from holdfast.torture.target.streams import DONE, PARKED, UNOWNED, WAITING, StreamReader

_SUPERVISED: Final = 0.2
_LATE: Final = 500  # transitions with numbers this far back may still become visible


class StreamProgress(RunProgress):
    """The state of a stream run; an event has ended when every consumer has passed it."""

    unit: ClassVar = "events"
    came: ClassVar = "appended"
    states: ClassVar = (WAITING, DONE, PARKED)
    open_states: ClassVar = (WAITING, UNOWNED)
    ended_states: ClassVar = (DONE,)


class NodeFleet(Fleet):
    """The nodes of a run."""

    module: ClassVar = "holdfast.torture.programs.node"
    failpoints: ClassVar = ("before_effect", "after_effect", "after_commit")

    def _settings(self, seat: FleetSeat) -> WorkerProgramSettings:
        is_supervised = self.chance.random() < _SUPERVISED and not seat.armed.failpoints
        return WorkerProgramSettings(
            name=seat.name,
            parent=os.getpid(),
            lease=self.recovery,
            queues=(),
            processes=2 if is_supervised else 1,
        )

    @property
    def recovery(self) -> float:
        """Seconds within which the shares of a dead node must have an owner again."""
        return self._plan.lease


class StreamConductor(Conductor):
    """One stream run on one store."""

    producing: ClassVar = "appender"
    reader: StreamReader

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
        super().__init__(plan, target, history=history, progress=progress, server=server, broker=broker)
        self._seen: set[int] = set()

    def _new_reader(self) -> StreamReader:
        return self.target.streams

    def _new_fleet(self) -> Fleet:
        return NodeFleet(self.plan, self.log, environment=self._environment, folder=self._logs, quiet=self._quiet)

    async def _prepare_more(self) -> None:
        """Create the categories."""
        async with self.target.app() as app:
            for name, partitions in PARTITIONS.items():
                await app.category(name, partitions=partitions)

    def _stop_faults(self) -> None:
        super()._stop_faults()
        self.log.writer.write(FaultsOver(at_us=now_us()))

    async def _resume(self, *, within: float) -> None:
        """Do nothing: no queue was paused."""

    async def _replace_workers(self) -> None:
        """Keep the nodes: every one of them can run every consumer."""

    def _snapshot(self) -> bool:
        """Take a snapshot of counts, shares and transitions; False if the store is unavailable, which is allowed."""
        try:
            self.progress.counts = self.reader.counts()
            self.log.writer.write(self.reader.shares())
            self.record_transitions()
            sent_us = now_us()
            store_us = self.target.clock()
            self.log.writer.write(Clock(at_us=now_us(), store_us=store_us, sent_us=sent_us))
        except HistoryDamaged:
            raise  # not a failure of the store
        except Exception as error:  # noqa: BLE001 - of either driver, or of Holdfast: faults are injected
            self.log.show(f"no snapshot of the store: {type(error).__name__}")
            return False
        return True

    def record_transitions(self) -> None:
        """Record the transitions of shares since the last snapshot: the store keeps only the latest."""
        for step in self.reader.transitions(max(self._seen, default=0) - _LATE):
            if step.number not in self._seen:
                self._seen.add(step.number)
                self.log.writer.write(step)

    async def run(self) -> None:
        """Run until the end of the drain; then record once more how the nodes left."""
        await super().run()
        await asyncio.to_thread(self.record_transitions)
