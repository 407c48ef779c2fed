"""Schedules: each nominal time becomes one job, by the store's clock, whichever caller fires it."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from holdfast.errors import ConfigError, ScheduleNotFound
from holdfast.model.instants import to_micros
from holdfast.model.job import JobState
from holdfast.model.schedule import recurrence, tick_id
from holdfast.model.schedule_definition import NAME_HEADER, TIME_HEADER, ScheduleDefinition
from holdfast.store.backend import Backend
from holdfast.store.schedules import Fired, ScheduleView
from holdfast.store.values import JobFilter
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MANY, OUTCOMES, Conformance, MakeBackend, claim, finish

SILENT = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)
APP = "app"


def each_five_minutes(task: str = "greet", *, queue: str = "default", **times: Any) -> ScheduleDefinition:
    """Return a schedule of every five minutes."""
    return ScheduleDefinition(recurrence("*/5 * * * *", **times), task, queue=queue)


async def fire(backend: Backend, *names: str, limit: int = MANY) -> Fired:
    """Fire as a worker that knows the task `greet`, and whose code declares `names`."""
    return await backend.schedules.fire(["greet"], names, limit)


async def view(backend: Backend, name: str) -> ScheduleView:
    """Return the view of one schedule."""
    (found,) = await backend.schedules.list([name])
    return found


async def times_of(backend: Backend) -> list[datetime]:
    """Return the nominal times of all jobs that were fired and not claimed, in order."""
    found: list[datetime] = []
    for state in (JobState.READY, JobState.SCHEDULED):
        page = await backend.insight.jobs(JobFilter(state, limit=MANY))
        for job in page.jobs:
            headers = (await backend.insight.job(job.id)).headers
            found.append(datetime.fromisoformat(headers[TIME_HEADER]))
    return sorted(found)


def at(clock: ManualClock, text: str) -> None:
    """Set the clock."""
    clock.advance(datetime.fromisoformat(text).replace(tzinfo=UTC) - clock.now)


def times(*texts: str) -> list[datetime]:
    """Return instants on the day of the tests."""
    return [datetime.fromisoformat(f"2026-11-16 {text}").replace(tzinfo=UTC) for text in texts]


class TestFire(Conformance):
    """`ScheduleStore.fire`."""

    @pytest.fixture(autouse=True)
    def _noon(self, clock: ManualClock) -> None:
        at(clock, "2026-11-16 12:01")

    async def test_without_schedules_nothing_fires(self, backend: Backend) -> None:
        assert await fire(backend) == Fired(0, None)

    async def test_a_schedule_fires_at_its_next_time_and_not_before(self, backend: Backend, clock: ManualClock) -> None:
        assert await backend.schedules.put("tidy", each_five_minutes())
        assert await fire(backend) == Fired(0, 4 * MINUTE)
        at(clock, "2026-11-16 12:05")
        assert await fire(backend) == Fired(1, 5 * MINUTE)
        assert await fire(backend) == Fired(0, 5 * MINUTE)
        assert await times_of(backend) == times("12:05")

    async def test_the_job_is_made_from_the_definition(self, backend: Backend, clock: ManualClock) -> None:
        definition = ScheduleDefinition(
            recurrence("*/5 * * * *"),
            "greet",
            queue="mail",
            payload='{"a":1}',
            headers={"from": "me"},
            priority=3,
            max_attempts=2,
            timeout=1.5,
            order_key="one",
        )
        await backend.schedules.put("tidy", definition)
        at(clock, "2026-11-16 12:05")
        await fire(backend)
        (time,) = times("12:05")
        details = await backend.insight.job(tick_id("tidy", to_micros(time)))
        job = details.job
        assert (job.queue, job.task, job.priority, job.max_attempts, job.order_key) == ("mail", "greet", 3, 2, "one")
        assert (details.payload, details.timeout) == ('{"a":1}', 1.5)
        assert details.headers == {"from": "me", NAME_HEADER: "tidy", TIME_HEADER: time.isoformat()}

    async def test_jitter_delays_the_job_after_its_nominal_time(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes(jitter=timedelta(minutes=3)))
        at(clock, "2026-11-16 12:05")
        assert (await fire(backend)).jobs == 1
        promotion = await backend.jobs.promote(MANY)
        assert promotion.moved == 0
        assert promotion.next_due is not None
        assert timedelta(0) < promotion.next_due < timedelta(minutes=3)

    async def test_after_an_outage_once_fires_the_latest(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes(missed="once"))
        at(clock, "2026-11-16 13:03")
        assert await fire(backend) == Fired(1, 2 * MINUTE)
        assert await times_of(backend) == times("13:00")

    async def test_after_an_outage_skip_fires_nothing(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes(missed="skip"))
        at(clock, "2026-11-16 13:03")
        assert await fire(backend) == Fired(0, 2 * MINUTE)
        assert (await view(backend, "tidy")).last_at is None

    async def test_after_an_outage_all_fires_each_in_batches(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes(missed="all", window=timedelta(minutes=15)))
        at(clock, "2026-11-16 13:03")
        assert await fire(backend, limit=2) == Fired(2, timedelta(0))
        assert await fire(backend, limit=2) == Fired(1, 2 * MINUTE)
        assert await times_of(backend) == times("12:50", "12:55", "13:00")

    async def test_a_worker_fires_only_what_it_can_run(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("mine", each_five_minutes())
        await backend.schedules.put("unknown", each_five_minutes("other"))
        await backend.schedules.declare(
            APP, {"declared": each_five_minutes(), "old": each_five_minutes()}, overrules={}
        )
        at(clock, "2026-11-16 12:05")
        assert (await fire(backend, "declared")).jobs == 2
        assert [each.overdue for each in await backend.schedules.list(["old", "unknown"])] == [timedelta(0)] * 2
        at(clock, "2026-11-16 12:06")
        assert [each.overdue for each in await backend.schedules.list(["old", "unknown"])] == [MINUTE] * 2

    async def test_a_tick_whose_job_has_ended_is_not_fired_again(self, backend: Backend, clock: ManualClock) -> None:
        """The clock is set back, and the nominal time comes again."""
        await backend.schedules.put("tidy", each_five_minutes())
        at(clock, "2026-11-16 12:05")
        await fire(backend)
        (job,) = await claim(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        at(clock, "2026-11-16 12:01")
        assert await fire(backend) == Fired(0, 4 * MINUTE)
        at(clock, "2026-11-16 12:05")
        assert await fire(backend) == Fired(0, 5 * MINUTE)
        assert await times_of(backend) == []

    @pytest.mark.parametrize("missed", ["skip", "once", "all"])
    async def test_a_clock_that_jumps_ahead_and_back_leaves_no_silent_schedule(
        self, backend: Backend, clock: ManualClock, missed: str
    ) -> None:
        await backend.schedules.put("tidy", each_five_minutes(missed=missed, window=timedelta(minutes=15)))
        at(clock, "2027-11-16 12:03")
        await fire(backend)
        at(clock, "2026-11-16 12:02")
        before = await times_of(backend)
        assert await fire(backend) == Fired(0, 3 * MINUTE)
        at(clock, "2026-11-16 12:05")
        assert await fire(backend) == Fired(1, 5 * MINUTE)
        assert await times_of(backend) == times("12:05") + before

    async def test_a_small_step_back_fires_nothing_twice(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes())
        at(clock, "2026-11-16 12:05")
        assert (await fire(backend)).jobs == 1
        clock.advance(-2)
        assert (await fire(backend)).jobs == 0
        clock.advance(2)
        assert (await fire(backend)).jobs == 0

    async def test_many_schedules_fire_in_a_few_calls(self, backend: Backend, clock: ManualClock) -> None:
        for number in range(70):
            await backend.schedules.put(f"tidy{number}", each_five_minutes(queue=f"q{number % 3}"))
        at(clock, "2026-11-16 12:05")
        fired = [await fire(backend)]
        while fired[-1].next_due == timedelta(0):
            fired.append(await fire(backend))
        assert sum(each.jobs for each in fired) == 70
        assert len(fired) <= 3

    async def test_concurrent_callers_fire_each_time_once(self, backend: Backend, clock: ManualClock) -> None:
        for number in range(10):
            await backend.schedules.put(f"tidy{number}", each_five_minutes(missed="all"))
        for minute in ("05", "20", "25"):
            at(clock, f"2026-11-16 12:{minute}")
            await asyncio.gather(*(fire(backend) for _ in range(20)))
            await fire(backend)
        expected = times("12:05", "12:10", "12:15", "12:20", "12:25")
        assert await times_of(backend) == sorted(expected * 10)

    async def test_the_switch_days_of_the_clocks(self, backend: Backend, clock: ManualClock) -> None:
        at(clock, "2026-03-28 12:00")
        night = ScheduleDefinition(recurrence("30 2 * * *", timezone="Europe/Vienna"), "greet")
        await backend.schedules.put("night", night)
        for hour in range(48):
            at(clock, f"2026-03-{28 + (12 + hour) // 24} {(12 + hour) % 24:02}:30")
            await fire(backend)
        assert [time.isoformat() for time in await times_of(backend)] == [
            "2026-03-29T01:00:00+00:00",
            "2026-03-30T00:30:00+00:00",
        ]


class TestFireFromManyProcesses(Conformance):
    """Several backends on one store, one per process."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_each_time_fires_once(self, backend: Backend, make_backend: MakeBackend, clock: ManualClock) -> None:
        at(clock, "2026-11-16 12:01")
        backends = [backend, await make_backend(), await make_backend()]
        for number in range(5):
            await backend.schedules.put(f"tidy{number}", each_five_minutes())
        at(clock, "2026-11-16 12:05")
        fired = await asyncio.gather(*(fire(each) for each in backends * 5))
        assert sum(each.jobs for each in fired) == 5

    async def test_the_same_declarations_at_once_are_added_once(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        backends = [backend, await make_backend(), await make_backend()]
        declared = {f"tidy{number}": each_five_minutes() for number in range(10)}
        turned = dict(reversed(declared.items()))
        await asyncio.gather(
            *(
                each.schedules.declare(APP, turned if number % 2 else declared, overrules=None)
                for number, each in enumerate(backends * 3)
            )
        )
        assert [each.name for each in await backend.schedules.list()] == sorted(declared)


class TestDefinitions(Conformance):
    """Schedules that are defined at run time."""

    @pytest.fixture(autouse=True)
    def _noon(self, clock: ManualClock) -> None:
        at(clock, "2026-11-16 12:01")

    async def test_a_schedule_is_listed_with_its_next_time(self, backend: Backend) -> None:
        definition = each_five_minutes()
        assert await backend.schedules.put("tidy", definition)
        assert await backend.schedules.list() == [
            ScheduleView(
                name="tidy",
                definition=definition,
                owner=None,
                undeclared_for=None,
                paused=False,
                last_at=None,
                next_at=times("12:05")[0],
                overdue=timedelta(0),
            )
        ]
        assert await backend.schedules.list(["other"]) == []

    async def test_a_replacement_keeps_what_is_due_unless_its_times_change(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.schedules.put("tidy", each_five_minutes())
        at(clock, "2026-11-16 12:06")
        assert not await backend.schedules.put("tidy", each_five_minutes(queue="other"))
        assert (await view(backend, "tidy")).next_at == times("12:05")[0]
        hourly = ScheduleDefinition(recurrence("@hourly"), "greet")
        assert not await backend.schedules.put("tidy", hourly)
        assert (await view(backend, "tidy")).next_at == times("13:00")[0]
        assert (await fire(backend)).jobs == 0

    async def test_a_paused_schedule_does_not_fire_and_forgets_what_it_missed(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.schedules.put("tidy", each_five_minutes(missed="all"))
        assert await backend.schedules.pause("tidy")
        assert not await backend.schedules.pause("tidy")
        paused = await view(backend, "tidy")
        assert (paused.paused, paused.next_at) == (True, None)
        at(clock, "2026-11-16 12:11")
        assert await fire(backend) == Fired(0, None)
        assert (await view(backend, "tidy")).overdue == timedelta(0)
        await backend.schedules.put("tidy", each_five_minutes(missed="all", queue="other"))
        assert await backend.schedules.resume("tidy")
        assert not await backend.schedules.resume("tidy")
        assert await fire(backend) == Fired(0, 4 * MINUTE)

    async def test_a_removed_schedule_fires_no_more(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes())
        assert await backend.schedules.remove("tidy", SILENT)
        assert not await backend.schedules.remove("tidy", SILENT)
        at(clock, "2026-11-16 12:05")
        assert await fire(backend) == Fired(0, None)

    async def test_a_schedule_that_does_not_exist_cannot_be_paused(self, backend: Backend) -> None:
        with pytest.raises(ScheduleNotFound):
            await backend.schedules.pause("tidy")
        with pytest.raises(ScheduleNotFound):
            await backend.schedules.resume("tidy")

    async def test_the_last_time_is_the_nominal_one(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.put("tidy", each_five_minutes())
        at(clock, "2026-11-16 12:07")
        await fire(backend)
        fired = await view(backend, "tidy")
        assert [fired.last_at, fired.next_at] == times("12:05", "12:10")


class TestDeclarations(Conformance):
    """Schedules that the code of an app declares."""

    @pytest.fixture(autouse=True)
    def _noon(self, clock: ManualClock) -> None:
        at(clock, "2026-11-16 12:01")

    async def test_what_code_declares_is_added_and_confirmed(self, backend: Backend, clock: ManualClock) -> None:
        declared = await backend.schedules.declare(APP, {"tidy": each_five_minutes()}, overrules=None)
        assert (dict(declared.disputed), dict(declared.taken)) == ({}, {})
        clock.advance(MINUTE)
        assert (await view(backend, "tidy")).undeclared_for == MINUTE
        await backend.schedules.declare(APP, {"tidy": each_five_minutes()}, overrules={})
        assert (await view(backend, "tidy")).undeclared_for == timedelta(0)
        assert (await view(backend, "tidy")).next_at == times("12:05")[0]

    async def test_the_last_worker_to_start_decides_the_definition(self, backend: Backend, clock: ManualClock) -> None:
        old, new = each_five_minutes(), each_five_minutes(queue="new")
        await backend.schedules.declare(APP, {"tidy": old}, overrules=None)
        clock.advance(MINUTE)
        await backend.schedules.declare(APP, {"tidy": new}, overrules=None)
        clock.advance(MINUTE)
        for _ in range(2):
            declared = await backend.schedules.declare(APP, {"tidy": old}, overrules={})
            assert dict(declared.disputed) == {"tidy": to_micros(times("12:02")[0])}
        assert (await view(backend, "tidy")).definition == new

    async def test_a_disputed_schedule_is_overruled_unless_it_was_confirmed_meanwhile(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        both = {"kept": each_five_minutes(), "gone": each_five_minutes()}
        await backend.schedules.declare(APP, both, overrules=None)
        fewer = {"kept": each_five_minutes(queue="new")}
        disputed = (await backend.schedules.declare(APP, fewer, overrules={})).disputed
        assert disputed.keys() == both.keys()
        clock.advance(MINUTE)
        await backend.schedules.declare(APP, both, overrules={})  # a worker with the old code is alive
        again = (await backend.schedules.declare(APP, fewer, overrules=disputed)).disputed
        assert again.keys() == both.keys()
        clock.advance(MINUTE)
        assert (await backend.schedules.declare(APP, fewer, overrules=again)).disputed == {}
        (kept,) = await backend.schedules.list()
        assert (kept.name, kept.definition) == ("kept", fewer["kept"])

    async def test_a_start_removes_nothing(self, backend: Backend) -> None:
        await backend.schedules.declare(APP, {"newer": each_five_minutes()}, overrules=None)
        declared = await backend.schedules.declare(APP, {"older": each_five_minutes()}, overrules=None)
        assert declared.disputed.keys() == {"newer"}
        assert len(await backend.schedules.list()) == 2

    async def test_apps_leave_one_another_alone(self, backend: Backend) -> None:
        await backend.schedules.declare("a", {"tidy": each_five_minutes()}, overrules=None)
        declared = await backend.schedules.declare("b", {"tidy": each_five_minutes(queue="b")}, overrules=None)
        assert (dict(declared.disputed), dict(declared.taken)) == ({}, {"tidy": "a"})
        assert (await view(backend, "tidy")).owner == "a"

    async def test_code_takes_over_what_was_defined_at_run_time_and_not_the_reverse(self, backend: Backend) -> None:
        await backend.schedules.put("tidy", each_five_minutes(queue="old"))
        await backend.schedules.declare(APP, {"tidy": each_five_minutes()}, overrules={})
        assert (await view(backend, "tidy")).definition == each_five_minutes()
        with pytest.raises(ConfigError, match="code"):
            await backend.schedules.put("tidy", each_five_minutes())

    async def test_a_live_declaration_cannot_be_removed(self, backend: Backend, clock: ManualClock) -> None:
        await backend.schedules.declare(APP, {"tidy": each_five_minutes()}, overrules=None)
        clock.advance(SILENT - timedelta(seconds=1))
        with pytest.raises(ConfigError, match="code"):
            await backend.schedules.remove("tidy", SILENT)
        clock.advance(1)
        assert await backend.schedules.remove("tidy", SILENT)

    async def test_a_pause_survives_a_deployment(self, backend: Backend) -> None:
        await backend.schedules.declare(APP, {"tidy": each_five_minutes()}, overrules=None)
        await backend.schedules.pause("tidy")
        await backend.schedules.declare(APP, {"tidy": each_five_minutes(queue="new")}, overrules=None)
        assert (await view(backend, "tidy")).paused
