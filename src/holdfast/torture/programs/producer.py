"""A producer of a run: `python -m holdfast.torture.programs.producer '{…}'`."""

from __future__ import annotations

import asyncio
import random

from holdfast.torture.programs.enqueueing import Enqueuer
from holdfast.torture.programs.opening import opened
from holdfast.torture.programs.operator import Follower
from holdfast.torture.programs.pace import ProducerPace
from holdfast.torture.programs.settings import Produced, ProducerSettings
from holdfast.torture.work.app import app
from holdfast.torture.work.base import Work
from holdfast.torture.work.catalogue import Drawer

_BATCHES = 4  # per second
_BULK = 0.6  # of the draws that may be bulks
_CROWD = 0.3  # of the single ones are several at once
_MOST_AT_ONCE = 500


class Producer:
    """Draws work and enqueues it, at a pace."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._chance = settings.chance()
        self._what_follows = settings.chance("what follows")  # operator actions on enqueued jobs: those may differ
        jobs, capabilities = round(settings.jobs / settings.share), app.backend.capabilities
        self._drawer = Drawer(self._chance, settings.share, jobs=jobs, capabilities=capabilities)
        self._enqueuer = Enqueuer(settings.name, self._chance, luck=settings.chance("luck"))
        self._follower = Follower()
        self._following: set[asyncio.Task[None]] = set()
        self._pace = ProducerPace(settings)

    async def run(self) -> None:
        """Produce until SIGTERM."""
        while not self._pace.is_over:
            await self._once(self._drawer.draw())
            await self._pace.keep(self._produced())
        self._follower.hurry()
        if self._following:
            await asyncio.wait(self._following, timeout=4 * self._settings.lease)
        self._pace.report(self._produced())

    def _produced(self) -> Produced:
        return Produced(self._enqueuer.enqueued, self._enqueuer.calls)

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
                chance = random.Random(self._what_follows.random())  # noqa: S311
                task = asyncio.ensure_future(work.follow(self._follower, job, chance))
                self._following.add(task)
                task.add_done_callback(self._following.discard)


async def produce(settings: ProducerSettings) -> None:
    """Produce until SIGTERM."""
    try:
        await Producer(settings).run()
    finally:
        await app.close()


def main() -> None:
    """Run the producer described by the argument."""
    with opened(ProducerSettings) as settings:
        asyncio.run(produce(settings))


if __name__ == "__main__":
    main()
