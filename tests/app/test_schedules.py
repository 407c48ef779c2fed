"""Schedules as a program uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, ConfigError, Context, TaskNotFound
from holdfast.backends.redis.schedule_rows import RedisScheduleRows
from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.errors import ArgumentsError, ScheduleNotFound, StoreUnavailable
from holdfast.model.job import JobState
from holdfast.store.schedule_rows import ScheduleChange


async def test_a_declared_schedule_runs_in_a_worker(app: App):
    ran: list[tuple[str, dict[str, str] | None]] = []
    enough = asyncio.Event()

    @app.schedule(every=timedelta(seconds=1), kwargs={"place": "home"})
    async def tidy(place: str, ctx: Context) -> None:
        ran.append((place, ctx.job.headers))
        if len(ran) == 2:
            enough.set()

    async with app.working(poll_interval=0.05), asyncio.timeout(20):
        await enough.wait()
    times = []
    for place, headers in ran:
        assert place == "home"
        assert headers is not None
        assert headers["schedule"] == "tidy"
        times.append(datetime.fromisoformat(headers["schedule_time"]))
    assert times[1] - times[0] >= timedelta(seconds=1)
    assert all(time.microsecond == 0 for time in times)
    (view,) = await app.schedules.list()
    assert (view.name, view.owner, view.paused) == ("tidy", "app", False)
    assert view.last_at is not None
    assert view.last_at >= times[-1]


async def test_a_worker_that_ends_by_itself_leaves_schedules_alone(app: App):
    @app.schedule(every=1)
    async def tidy() -> None: ...

    await app.drain("default")
    await app.worker(until_empty=True).run()
    assert await app.schedules.list() == []


async def test_a_task_has_several_schedules_under_different_names(app: App):
    @app.schedule("0 9 * * MON-FRI", name="weekdays", timezone="Europe/Vienna", args=[2])
    @app.schedule("@monthly", kwargs={"depth": 9}, queue="slow", order_key="one")
    @app.task(queue="fast", max_attempts=3)
    async def sweep(depth: int) -> int:
        return depth

    assert sorted(app.schedules.declared) == ["sweep", "weekdays"]
    monthly, weekdays = app.schedules.declared["sweep"], app.schedules.declared["weekdays"]
    assert (monthly.queue, monthly.order_key, weekdays.queue, weekdays.max_attempts) == ("slow", "one", "fast", 3)
    assert await sweep(4) == 4
    with pytest.raises(ConfigError, match="another name"):
        app.schedule("@daily", args=[1])(sweep)


def test_wrong_declarations_are_refused_where_they_stand(app: App):
    @app.task
    async def sweep(depth: int) -> None: ...

    with pytest.raises(ConfigError, match="parentheses"):
        app.schedule(sweep)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="five fields"):
        app.schedule("every day", args=[1])(sweep)
    with pytest.raises(ArgumentsError):
        app.schedule("@daily")(sweep)
    with pytest.raises(ConfigError, match="there is no setting delay"):
        app.schedule("@daily", args=[1], delay=3)(sweep)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="list of arguments"):
        app.schedule("@daily", args="1")(sweep)
    assert app.schedules.declared == {}


async def test_schedules_are_defined_paused_run_and_removed_at_run_time(app: App):
    @app.task
    async def sweep(depth: int) -> int:
        return depth

    assert await app.schedules.add("nightly", "sweep", "30 2 * * *", timezone="Europe/Vienna", args=[3])
    assert not await app.schedules.add("nightly", "sweep", "30 3 * * *", timezone="Europe/Vienna", args=[3])
    view = await app.schedules.show("nightly")
    assert view.next_at is not None
    assert view.next_at > datetime.now(UTC)
    assert await app.schedules.pause("nightly")
    job = await app.schedules.run("nightly")
    assert not (await app.schedules.run("nightly", job_id=job.id)).created
    await app.drain("default")
    assert await job.state() is JobState.COMPLETED
    assert await job.result() == 3
    assert (await job.details()).headers == {"schedule": "nightly"}
    assert await app.schedules.resume("nightly")
    assert await app.schedules.remove("nightly")
    assert not await app.schedules.remove("nightly")
    for act in (app.schedules.show, app.schedules.pause, app.schedules.resume, app.schedules.run):
        with pytest.raises(ScheduleNotFound, match="nightly"):
            await act("nightly")
    with pytest.raises(TaskNotFound):
        await app.schedules.add("nightly", "unknown", "@daily")


def test_blocking_calls_have_the_same_names(file_app: App):
    @file_app.task
    def sweep() -> None: ...

    schedules = file_app.sync.schedules
    assert schedules.add("nightly", "sweep", "@daily")
    assert [view.name for view in schedules.list()] == ["nightly"]
    assert schedules.pause("nightly")
    assert schedules.resume("nightly")
    assert schedules.run("nightly").created
    assert schedules.show("nightly").name == "nightly"
    assert schedules.remove("nightly")


async def test_a_schedule_declared_by_a_running_worker_cannot_be_removed(app: App):
    @app.schedule("@daily")
    async def tidy() -> None: ...

    async with app.working(), asyncio.timeout(20):
        while not await app.schedules.list():  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0.02)
        with pytest.raises(ConfigError, match="remove it from the code"):
            await app.schedules.remove("tidy")
        with pytest.raises(ConfigError, match="change it there"):
            await app.schedules.add("tidy", "tidy", "@hourly")


@pytest.mark.parametrize("fails", ["before the next time is written", "after it"])
async def test_a_firing_that_ends_halfway_leaves_nothing(each_url: str, monkeypatch: pytest.MonkeyPatch, fails: str):
    """A process that dies there leaves the same: the job and the next time are one transaction."""
    app = App(each_url)
    try:

        @app.task
        async def tidy() -> None: ...

        await app.schedules.add("tidy", "tidy", every=1, missed="all")
        due = (await app.schedules.show("tidy")).next_at
        assert due is not None
        await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()) + 0.05)
        kind: Any = SqlScheduleRows if each_url.startswith(("sqlite", "postgres")) else RedisScheduleRows
        write = kind.write

        def broken(rows: Any, changes: Sequence[ScheduleChange]) -> Generator[Any, Any, Any]:
            if fails == "after it":
                yield from write(rows, changes)
            raise StoreUnavailable(fails)

        with monkeypatch.context() as patched:
            patched.setattr(kind, "write", broken)
            with pytest.raises(StoreUnavailable):
                await app.backend.schedules.fire(["tidy"], [], 100)
        view = await app.schedules.show("tidy")
        assert (view.last_at, view.next_at) == (None, due)
        assert (await app.jobs.list("ready")).jobs == []
        assert (await app.backend.schedules.fire(["tidy"], [], 1)).jobs == 1
        assert (await app.schedules.show("tidy")).last_at == due
    finally:
        await app.close()
