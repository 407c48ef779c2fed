"""Unique jobs as a program asks for them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.app.capability import needs
from tests.app.work import run_all

from holdfast import App, ConfigError, Context, JobState, UniqueConflict


@dataclass
class Item:
    """What is bought."""

    price: float
    tags: set[str]


@pytest.fixture
def greet(app: App):
    @app.task
    async def greet(name: str = "you", *, loud: bool = False) -> str:
        return name.upper() if loud else name

    return greet


async def test_every_caller_gets_the_job_that_holds_the_key(on_each_store: App) -> None:
    app = on_each_store

    @app.task
    async def greet(name: str) -> str:
        return name

    first = await greet.options(unique_key="k").enqueue("ann")
    again = await asyncio.gather(*(greet.options(unique_key="k").enqueue("bob") for _ in range(20)))
    assert first.created
    assert {job.id for job in again} == {first.id}
    assert not any(job.created for job in again)
    assert (await first.details()).unique_key == "k"
    await run_all(app)
    assert await again[0].result() == "ann"
    assert (await greet.options(unique_key="k").enqueue("bob")).created


async def test_a_conflict_that_raises_in_a_batch_of_callers_fails_only_its_own_caller(on_each_store: App) -> None:
    app = on_each_store

    @app.task
    async def greet(name: str) -> str:
        return name

    held = await greet.options(unique_key="k").enqueue("ann")
    strict = greet.options(unique_key="k", on_conflict="raise")
    calls = [greet.enqueue("bob"), strict.enqueue("bob"), greet.enqueue("cid"), strict.enqueue("dan")]
    answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == ["JobHandle", "UniqueConflict"] * 2
    assert answers[1].job_id == held.id
    assert f"holdfast job show {held.id}" in str(answers[1])


@pytest.mark.parametrize("given", [["secret"], {"name": "secret"}, ["secret" * 20]])
async def test_a_key_that_was_made_of_arguments_is_shown_nowhere(app: App, greet, given: Any) -> None:
    strict = greet.options(unique=True, on_conflict="raise")
    (first,) = await strict.enqueue_many([given])
    assert (await first.details()).unique_key == "(arguments)"
    with pytest.raises(UniqueConflict) as refused:
        await strict.enqueue_many([given])
    await first.cancel()
    (second,) = await strict.enqueue_many([given])
    with pytest.raises(UniqueConflict, match=second.id) as not_retried:
        await app.jobs.retry(first.id)
    for conflict in (refused.value, not_retried.value):
        assert "secret" not in f"{conflict} {vars(conflict)}"
        assert "args-" not in f"{conflict} {vars(conflict)}"


async def test_the_arguments_are_the_key_however_the_call_is_written(app: App, greet) -> None:
    unique = greet.options(unique=True)
    first = await unique.enqueue("ann")
    same = [await unique.enqueue(name="ann"), await unique.enqueue("ann", loud=False)]
    same += await unique.enqueue_many([{"name": "ann"}, ["ann"], unique.call("ann")])
    assert {job.id for job in same} == {first.id}
    others = [await unique.enqueue(), await unique.enqueue("ann", loud=True), await unique.enqueue("bob")]
    assert all(job.created for job in others)
    assert not (await unique.enqueue("you")).created  # the default


async def test_values_that_the_handler_cannot_tell_apart_are_one_key(app: App) -> None:
    @app.task(unique=True)
    async def buy(item: Item, extra: dict[str, int]) -> None: ...

    first = await buy.enqueue(Item(1, {"a", "b"}), {"x": 1, "y": 2})
    assert not (await buy.enqueue(Item(1.0, {"b", "a"}), {"y": 2, "x": 1})).created
    assert (await buy.enqueue(Item(1.5, {"b", "a"}), {"y": 2, "x": 1})).id != first.id


async def test_options_override_the_settings_of_the_task(app: App) -> None:
    @app.task(unique=True, unique_for="waiting", on_conflict="replace")
    async def note(text: str) -> str:
        return text

    first = await note.enqueue("a")
    assert (await note.enqueue("a")).id == first.id
    assert (await note.options(unique=False).enqueue("a")).created
    with pytest.raises(UniqueConflict):
        await note.options(on_conflict="raise").enqueue("a")
    keyed = await note.options(unique_key="k").enqueue("a")
    assert (await note.options(unique_key="k").enqueue("b")).id == keyed.id
    assert "b" in (await keyed.details()).payload


async def test_a_call_that_replaces_moves_the_job_and_its_last_arguments_run(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def index(version: int) -> None:
        ran.append(version)

    later = index.options(unique_key="doc", unique_for="waiting", on_conflict="replace", delay=3600)
    job = await later.enqueue(1)
    assert await job.state() is JobState.SCHEDULED
    now = index.options(unique_key="doc", unique_for="waiting", on_conflict="replace")
    assert (await now.enqueue(2)).id == job.id
    await run_all(app)
    assert ran == [2]


async def test_a_period_is_given_as_a_number_or_a_timedelta(app: App, greet) -> None:
    for period in (3600, timedelta(hours=1)):
        hourly = greet.options(unique_key=str(period), unique_for=period)
        job = await hourly.enqueue()
        await run_all(app)
        assert await job.state() is JobState.COMPLETED
        assert (await hourly.enqueue()).id == job.id


async def test_inside_the_transaction_of_a_handler_a_rollback_frees_the_key(on_each_store: App) -> None:
    needs(on_each_store, "join transactions")
    app = on_each_store
    seen: list[bool] = []

    @app.task
    async def child() -> None: ...

    @app.task(retry=0.01, max_attempts=2)
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            seen.append((await child.options(unique_key="k").enqueue()).created)
            if ctx.job.attempt == 1:
                raise ValueError

    await parent.enqueue()
    await run_all(app)
    assert seen == [True, True]
    assert len((await app.jobs.list("completed")).jobs) == 2


def test_in_the_transaction_of_the_caller_a_rollback_frees_the_key(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.sync.opened()

    @app.task
    async def child() -> None: ...

    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        unique = child.options(unique_key="k", using=connection)
        connection.execute("begin immediate")
        assert unique.sync.enqueue().created
        assert not unique.sync.enqueue().created
        connection.execute("rollback")
        connection.execute("begin immediate")
        job = unique.sync.enqueue()
        assert job.created
        with pytest.raises(UniqueConflict):
            child.options(unique_key="k", using=connection, on_conflict="raise").sync.enqueue()
        connection.execute("commit")
    assert child.options(unique_key="k").sync.enqueue().id == job.id
    app.sync.close()
    app.portal.close()


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"unique": "yes"}, "neither True nor False"),
        ({"unique": True, "unique_key": "k"}, "choose one"),
        ({"unique_key": 7}, "is not a string"),
        ({"unique_key": ""}, "is empty"),
        ({"unique_key": "k" * 129}, "at most 128"),
        ({"unique_key": "a\0b"}, "NUL"),
        ({"unique_for": "waiting"}, "add unique_key=… or unique=True"),
        ({"on_conflict": "raise"}, "add unique_key=… or unique=True"),
        ({"unique": True, "unique_for": "ever"}, "'waiting', 'unfinished' or a period"),
        ({"unique": True, "unique_for": True}, "'waiting', 'unfinished' or a period"),
        ({"unique": True, "unique_for": 0}, "is not a period"),
        ({"unique": True, "on_conflict": "ignore"}, "'keep', 'replace' or 'raise'"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_remedy(app: App, greet, options, remedy) -> None:
    with pytest.raises(ConfigError, match=remedy):
        greet.options(**options)
    with pytest.raises(ConfigError, match=remedy):
        app.task(name="other", **options)(lambda: None)
