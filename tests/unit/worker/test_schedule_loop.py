"""Workers and schedules in virtual time: the store's clock and the workers' clocks pass without any waiting."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.declarations import Declarations
from holdfast.model.job import JobState
from holdfast.model.schedule import recurrence, tick_id
from holdfast.model.schedule_definition import TIME_HEADER, ScheduleDefinition
from holdfast.store.schedules import Fired, ScheduleStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference import Reference, ReferenceBackend
from holdfast.worker.schedules import POLL, ScheduleLoop

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Store:
    """The schedules of the reference model, which an outage makes unreachable."""

    def __init__(self, inner: ScheduleStore) -> None:
        self.inner = inner
        self.is_down = False
        self.loses_replies = False
        self.calls: Counter[str] = Counter()

    async def fire(self, *given) -> Fired:
        self.calls["fire"] += 1
        if self.is_down:
            raise StoreUnavailable("down")
        fired = await self.inner.fire(*given)
        if self.loses_replies:
            raise StoreUnavailable("the reply was lost")
        return fired

    async def declare(self, *given, **named):
        self.calls["declare"] += 1
        if self.is_down:
            raise StoreUnavailable("down")
        return await self.inner.declare(*given, **named)


class World:
    """Workers over one store, in virtual time."""

    def __init__(self) -> None:
        self.clock = ManualClock(int(NOON.timestamp() * 1_000_000))
        self.model = Reference(self.clock)
        self.backend = ReferenceBackend(self.model)
        self.store = Store(self.backend.schedules)
        self.now = 1000.0
        self.due: dict[ScheduleLoop, float] = {}

    def start(self, **declared: ScheduleDefinition) -> ScheduleLoop:
        loop = ScheduleLoop(lambda: self.store, Declarations("app", declared), ["greet"])  # type: ignore[arg-type, return-value]
        self.due[loop] = self.now
        return loop

    def stop(self, loop: ScheduleLoop) -> None:
        del self.due[loop]

    async def run(self, seconds: float) -> None:
        """Let time pass; each worker does what it is due to do."""
        end = self.now + seconds
        while self.due:
            loop = min(self.due, key=self.due.__getitem__)
            if self.due[loop] > end:
                break
            self.pass_by(max(0.0, self.due[loop] - self.now))
            self.due[loop] = self.now + await loop.step(self.now)
        self.pass_by(end - self.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.clock.advance(seconds)

    @property
    def fired(self) -> list[str]:
        """The nominal times of all jobs, in order."""
        headers = [record.new.headers or {} for record in self.model.records.values()]
        return sorted(header[TIME_HEADER][11:19] for header in headers)

    async def names(self) -> list[str]:
        return [view.name for view in await self.backend.schedules.list()]


@pytest.fixture
def world() -> World:
    return World()


def each(minutes: int, *, queue: str = "default", **times) -> ScheduleDefinition:
    return ScheduleDefinition(recurrence(every=timedelta(minutes=minutes), **times), "greet", queue=queue)


async def test_a_declared_schedule_fires_at_its_times(world):
    world.start(tidy=each(5))
    await world.run(16 * 60)
    assert world.fired == ["12:05:00", "12:10:00", "12:15:00"]


async def test_it_fires_within_a_moment_of_its_time(world):
    world.start(tidy=each(5))
    await world.run(299)
    assert world.fired == []
    await world.run(1.05)
    assert world.fired == ["12:05:00"]


async def test_many_workers_fire_each_time_once(world):
    for _ in range(20):
        world.start(tidy=each(1), sweep=each(2))
    await world.run(601)
    assert len(world.fired) == 15
    assert Counter(world.fired).most_common(1)[0][1] == 2


async def test_a_worker_without_schedules_reads_seldom(world):
    world.start()
    await world.run(60)
    assert world.store.calls["fire"] <= 60 / POLL + 2
    assert world.store.calls["declare"] == 2


async def test_a_schedule_that_another_process_defines_is_noticed(world):
    world.start()
    await world.run(30)
    await world.backend.schedules.put("tidy", each(5))
    await world.run(5 * 60)
    assert world.fired == ["12:05:00"]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", ["12:05:00", "12:45:00"]),
        ("once", ["12:05:00", "12:40:00", "12:45:00"]),
        ("all", ["12:05:00", *(f"12:{minute}:00" for minute in range(10, 50, 5))]),
    ],
)
async def test_an_outage_of_the_store(world, missed, expected):
    world.start(tidy=each(5, missed=missed))
    await world.run(6 * 60)
    world.store.is_down = True
    await world.run(36 * 60)
    world.store.is_down = False
    await world.run(4 * 60)
    assert world.fired == expected


async def test_an_outage_of_all_workers(world):
    old = world.start(tidy=each(5, missed="once"))
    await world.run(6 * 60)
    world.stop(old)
    await world.run(3 * 3600)
    world.start(tidy=each(5, missed="once"))
    await world.run(60)
    assert world.fired == ["12:05:00", "15:05:00"]


async def test_lost_replies_fire_nothing_twice(world):
    world.start(tidy=each(5, missed="all"))
    await world.run(1)
    world.store.loses_replies = True
    await world.run(11 * 60)
    world.store.loses_replies = False
    await world.run(5 * 60)
    assert world.fired == ["12:05:00", "12:10:00", "12:15:00"]


async def test_a_clock_that_jumps_ahead_and_back(world):
    world.start(tidy=each(5, missed="once"))
    await world.run(6 * 60)
    world.clock.advance(timedelta(days=90, minutes=1))
    await world.run(10)
    assert len(world.fired) == 2
    world.clock.advance(-timedelta(days=90, minutes=1))
    await world.run(10 * 60)
    assert sorted(set(world.fired)) == ["12:05:00", "12:10:00", "12:15:00"]
    assert len(world.fired) == 4


async def test_a_clock_that_is_set_back_fires_no_time_again(world):
    world.start(tidy=each(5))
    await world.run(11 * 60)
    world.clock.advance(-timedelta(minutes=8))
    await world.run(10 * 60)
    assert world.fired == ["12:05:00", "12:10:00"]
    await world.run(3 * 60)
    assert world.fired == ["12:05:00", "12:10:00", "12:15:00"]


async def test_a_schedule_removed_from_the_code_is_removed_from_the_store(world):
    old = world.start(tidy=each(5), sweep=each(5))
    await world.run(60)
    world.start(tidy=each(5))
    await world.run(20 * 60)
    assert await world.names() == ["sweep", "tidy"]  # a worker with the old code is alive, and fires it
    assert len(world.fired) == 8
    world.stop(old)
    await world.run(8 * 60)
    assert await world.names() == ["tidy"]
    assert len(world.fired) == 9


async def test_the_last_schedule_removed_from_the_code_is_removed_too(world):
    old = world.start(tidy=each(5))
    await world.run(60)
    world.stop(old)
    world.start()
    await world.run(10 * 60)
    assert await world.names() == []
    assert world.fired == []


async def test_an_older_worker_does_not_remove_what_a_newer_one_added(world):
    world.start(tidy=each(5))
    await world.run(60)
    world.start(tidy=each(5), sweep=each(5))
    await world.run(3600)
    assert await world.names() == ["sweep", "tidy"]


async def test_after_an_outage_of_the_store_nothing_is_removed_before_others_could_confirm(world):
    world.start(tidy=each(5))
    world.start(tidy=each(5), sweep=each(5))
    await world.run(120)
    world.store.is_down = True
    await world.run(3600)
    world.store.is_down = False
    await world.run(3600)
    assert await world.names() == ["sweep", "tidy"]


async def test_a_clock_that_jumps_ahead_removes_nothing(world):
    world.start(tidy=each(5))
    world.start(tidy=each(5), sweep=each(5))
    await world.run(120)
    world.clock.advance(timedelta(days=2))
    await world.run(1200)
    assert await world.names() == ["sweep", "tidy"]


async def test_a_rolling_deployment_ends_with_the_new_definition(world):
    old = [world.start(tidy=each(5, queue="old")) for _ in range(3)]
    await world.run(90)
    for loop in old:
        world.stop(loop)
        world.start(tidy=each(5, queue="new"))
        await world.run(90)
    (view,) = await world.backend.schedules.list()
    assert view.definition.queue == "new"


async def test_an_old_worker_that_restarts_meanwhile_does_not_win_for_good(world):
    world.start(tidy=each(5, queue="new"))
    await world.run(90)
    old = world.start(tidy=each(5, queue="old"))
    await world.run(600)
    (view,) = await world.backend.schedules.list()
    assert view.definition.queue == "old"
    world.stop(old)
    await world.run(480)
    (view,) = await world.backend.schedules.list()
    assert view.definition.queue == "new"
    assert world.fired == ["12:05:00", "12:10:00", "12:15:00"]


async def test_a_tick_is_found_by_schedule_and_time(world):
    world.start(tidy=each(5))
    await world.run(301)
    job_id = tick_id("tidy", int((NOON + timedelta(minutes=5)).timestamp() * 1_000_000))
    assert world.model.records[job_id].state is JobState.READY
