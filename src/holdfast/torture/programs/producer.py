"""A producer of a run: `python -m holdfast.torture.programs.producer '{…}'`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time

import msgspec

from holdfast.runtime.parent_death import die_with
from holdfast.torture.programs.enqueueing import Enqueuer
from holdfast.torture.programs.following import Follower
from holdfast.torture.programs.settings import Produced, ProducerSettings
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app
from holdfast.torture.work.base import Work
from holdfast.torture.work.catalogue import Drawer

_TELL_EVERY = 0.5  # seconds
_BATCHES = 4  # a second
_BULK = 0.6  # of the draws that may be bulks
_CROWD = 0.3  # of the single ones are several at once
_MOST_AT_ONCE = 500
_TRICKLE = 5  # times slower, while the faults go on


class Producer:
    """Draws work and enqueues it, at a pace."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._chance = random.Random(f"{settings.seed}/{settings.name}")  # noqa: S311 - repeatable on purpose
        self._drawer = Drawer(self._chance, settings.share, jobs=round(settings.jobs / settings.share))
        self._enqueuer = Enqueuer(settings.name, self._chance)
        self._follower = Follower()
        self._following: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._told_at = 0.0

    def stop(self) -> None:
        """Let the call in flight be the last."""
        self._stopped.set()

    async def run(self) -> None:
        """Produce until stopped."""
        began = time.monotonic()
        while not self._stopped.is_set():
            await self._once(self._drawer.draw())
            self._tell()
            ahead = self._due(self._enqueuer.enqueued) - (time.monotonic() - began)
            if ahead > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(ahead, 1.0)):
                        await self._stopped.wait()
        self._follower.hurry()
        if self._following:
            await asyncio.wait(self._following, timeout=4 * self._settings.lease)
        self._tell(is_last=True)

    def _due(self, enqueued: int) -> float:
        """Return when so many jobs are to be enqueued: at the rate, and once all are, at a trickle."""
        jobs, rate = self._settings.jobs, self._settings.rate
        return min(enqueued, jobs) / rate + max(0, enqueued - jobs) * _TRICKLE / rate

    async def _once(self, work: Work) -> None:
        most = max(2, min(_MOST_AT_ONCE, round(self._settings.rate / _BATCHES)))
        if not work.single and self._chance.random() < _BULK:
            jobs = await self._enqueuer.many(work, self._chance.randint(2, most))
        elif not (work.single or work.in_turn) and self._chance.random() < _CROWD:
            crowd = [self._enqueuer.one(work) for _ in range(self._chance.randint(2, 8))]
            jobs = [job for some in await asyncio.gather(*crowd) for job in some]
        else:
            jobs = await self._enqueuer.one(work)
        if work.follow is not None:
            for job in jobs:
                chance = random.Random(self._chance.random())  # noqa: S311
                task = asyncio.ensure_future(work.follow(self._follower, job, chance))
                self._following.add(task)
                task.add_done_callback(self._following.discard)

    def _tell(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if is_last or now >= self._told_at + _TELL_EVERY:
            self._told_at = now
            report = Produced(self._enqueuer.enqueued, self._enqueuer.calls)
            os.write(1, msgspec.json.encode(report) + b"\n")


async def produce(settings: ProducerSettings) -> None:
    """Produce until SIGTERM."""
    producer = Producer(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producer.stop)
    try:
        await producer.run()
    finally:
        await app.close()


def main() -> None:
    """Run the producer described by the argument."""
    settings = msgspec.json.decode(sys.argv[1], type=ProducerSettings)
    die_with(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on the terminal is the conductor's affair
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    recorder.open()
    asyncio.run(produce(settings))
    recorder.close()


if __name__ == "__main__":
    main()
