"""A store on Redis as a target: created and dropped by the run, and nothing that is not its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers.redis import connection_of, drop_store, new_store_url

from holdfast import App
from holdfast.torture.names import QUEUE
from holdfast.torture.target import Target, target_of
from holdfast.torture.target.base import NOTHING, Foreign, Reserved


@pytest.fixture
def target() -> Iterator[Target]:
    target = target_of(new_store_url("valkey"))
    yield target
    drop_store(target.url)


async def enqueue(url: str, queue: str, count: int = 1) -> None:
    app = App(url)

    @app.task(queue=queue, max_attempts=2)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    async with app:
        await work.options(headers={"call": "p1"}).enqueue_many([{}] * count)
        await work.options(order_key="a").enqueue_many([{}] * 2)
        await work.options(delay=60).enqueue()
        await work.options(max_attempts=1).enqueue(fails=True)


async def drain(url: str, queue: str) -> None:
    app = App(url)

    @app.task(queue=queue)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    async with app:
        await app.drain(queue)


async def test_it_reads_every_job_in_the_state_of_its_set(target: Target):
    target.create()
    await enqueue(target.url, QUEUE, 3)

    assert {state: count for state, count in target.jobs.counts().items() if count} == {
        "ready": 5,
        "blocked": 1,
        "scheduled": 1,
    }
    await drain(target.url, QUEUE)
    rows = await asyncio.to_thread(lambda: list(target.jobs.rows()))
    assert sorted(row.state for row in rows) == ["completed"] * 5 + ["failed", "scheduled"]
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    assert sum(row.call == "p1" for row in rows) == 3
    assert {row.queue for row in rows} == {QUEUE}
    assert all(row.finished_us >= row.enqueued_us > 0 for row in rows if row.state != "scheduled")
    (failed,) = [row for row in rows if row.state == "failed"]
    assert [(attempt.outcome, attempt.error) for attempt in failed.attempts] == [("failed", "ValueError")]
    assert "ValueError" in failed.reason
    (late,) = [row for row in rows if row.state == "scheduled"]
    assert late.run_us - late.enqueued_us == 60_000_000
    assert target.integrity() == ""


async def test_a_job_that_is_in_the_set_of_another_state_is_damage(target: Target):
    target.create()
    await enqueue(target.url, QUEUE)
    client: Any = connection_of(target.url)
    prefix = "{holdfast:" + target.url.partition("name=")[2] + "}:"
    ((member, turn),) = client.zrange(f"{prefix}r0", 0, 0, withscores=True)
    client.zrem(f"{prefix}r0", member)
    assert "is ready, and in the sets of []" in target.integrity()

    client.zadd(f"{prefix}r0", {member: turn})
    client.zadd(f"{prefix}f0", {member: turn})
    assert "is ready, and in the sets of ['ready', 'failed']" in target.integrity()


async def test_a_store_that_no_run_has_made_is_refused(target: Target):
    await enqueue(target.url, QUEUE)
    with pytest.raises(Foreign, match="was not created by a torture run"):
        target.create()
    assert target.jobs.counts()["ready"] == 3


async def test_jobs_of_others_in_the_store_of_a_run_are_not_dropped(target: Target):
    target.create()
    await enqueue(target.url, "theirs")
    with pytest.raises(Foreign, match="holds 5 jobs"):
        target.drop()
    assert target.jobs.counts()["ready"] == 3


async def test_a_run_leaves_nothing_behind(target: Target):
    assert target.drop() == NOTHING
    target.create()
    await enqueue(target.url, QUEUE)
    assert "is gone" in target.drop()
    assert not target.exists()
    assert target.drop() == NOTHING


def test_two_runs_exclude_each_other(target: Target):
    with target.reserved():
        other = target_of(target.url)
        with pytest.raises(Reserved), other.reserved():
            pass
        target.require_reservation()
    with other.reserved():
        pass


async def test_only_connections_of_the_store_are_terminated(target: Target):
    target.create()
    app = App(target.url)
    async with app:
        await app.queues.list()
        sessions = target.sessions()
        assert sessions
        assert target.open_connections() == len(sessions)
        assert target.terminate(sessions) == len(sessions)
    assert target.sessions() == []


def test_the_name_of_a_runs_store_is_one_that_no_app_uses(target: Target):
    assert target.url.endswith("_torture")
    assert target_of(target.url).url == target.url
    assert target.versions()["valkey"]
    assert abs(target.clock() - target.clock()) < 1_000_000
