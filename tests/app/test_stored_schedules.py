"""Stored schedules that a process does not understand: a newer one has written them."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.work import LIMIT, change, working

from holdfast import App, ConfigError
from holdfast.reports.doctor import examine

OTHERS = [
    pytest.param("Europe/Vienna", "Europe/Newtown", "timezone='Europe/Newtown' is unknown", id="time zone"),
    pytest.param('"once"', '"twice"', "cannot be read", id="missed"),
    pytest.param('"times":{', '"times":[', "cannot be read", id="damaged"),
]


async def add(app: App, path: Path, old: str, new: str) -> asyncio.Event:
    """Define two schedules that are due, of which another process has written the first, `strange`."""
    ran = asyncio.Event()

    @app.task
    async def sweep() -> None:
        ran.set()

    @app.task
    async def strange() -> None: ...

    await app.schedules.add("strange", "strange", "*/5 * * * *", timezone="Europe/Vienna")
    await app.schedules.add("sweep", "sweep", every=timedelta(minutes=5))
    strange_one = "update holdfast_schedule set definition = replace(definition, ?, ?) where name = 'strange'"
    assert change(path, strange_one, old, new) == 1
    assert change(path, "update holdfast_schedule set next_at = 300000000") == 2
    return ran


@pytest.mark.parametrize(("old", "new", "problem"), OTHERS)
async def test_a_schedule_that_a_worker_does_not_understand_leaves_the_worker_and_other_schedules_alone(
    app: App, path: Path, caplog: pytest.LogCaptureFixture, old: str, new: str, problem: str
):
    ran = await add(app, path, old, new)
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        async with working(app) as worker:
            await asyncio.wait_for(ran.wait(), LIMIT)
            schedules = worker._backend.schedules
            assert (await schedules.fire(["strange"], [], 100)).problems == {}  # it was told already
    warnings = [text for text in caplog.messages if "schedule strange is due and cannot be fired here" in text]
    assert len(warnings) == 1
    assert problem in warnings[0]


@pytest.mark.parametrize(("old", "new", "problem"), OTHERS)
async def test_a_schedule_that_is_not_understood_is_listed_and_found_by_the_doctor(
    app: App, path: Path, old: str, new: str, problem: str
):
    await add(app, path, old, new)
    strange, sweep = await app.schedules.list()
    assert (strange.definition.task, sweep.problem) == ("strange", None)
    assert problem in str(strange.problem)
    (finding,) = [found for found in await examine(app) if found.check == "schedules"]
    assert "strange" in finding.text
    assert problem in str(finding.remedy)


@pytest.mark.parametrize(("old", "new", "problem"), OTHERS)
async def test_a_schedule_that_is_not_understood_can_be_paused_and_replaced_but_not_run(
    app: App, path: Path, old: str, new: str, problem: str
):
    await add(app, path, old, new)
    with pytest.raises(ConfigError, match=problem):
        await app.schedules.run("strange")
    assert await app.schedules.pause("strange")
    with pytest.raises(ConfigError, match=f"schedule strange cannot be resumed here: .*{problem}"):
        await app.schedules.resume("strange")
    assert not await app.schedules.add("strange", "strange", "@daily")
    assert await app.schedules.resume("strange")


async def test_many_schedules_that_are_not_understood_do_not_fill_the_first_page(app: App, path: Path):
    ran = await add(app, path, '"once"', '"twice"')
    copies = """insert into holdfast_schedule (name, definition, task, owner, declared_at, paused, next_at, last_at,
      decided_at) with recursive number(n) as (select 1 union all select n + 1 from number where n < 120)
      select 'a' || n, definition, task, owner, declared_at, paused, 0, last_at, decided_at
      from holdfast_schedule, number where name = 'strange'"""
    assert change(path, copies) == 120
    async with working(app):
        await asyncio.wait_for(ran.wait(), LIMIT)
