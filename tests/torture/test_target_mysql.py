"""A database on MariaDB or MySQL as a target: created and dropped by the run, and nothing that is not its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import pytest
from tests.servers import mysql

from holdfast import App
from holdfast.errors import ConfigError
from holdfast.torture.names import PAUSED, QUEUE
from holdfast.torture.target import Target, target_of
from holdfast.torture.target.base import NOTHING, Foreign, Reserved


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    server = mysql.server_url(request.param)
    name = f"shop_{secrets.token_hex(4)}"
    yield target_of(server + name)
    mysql.run(server, f"drop database if exists {name}_torture")


async def prepared(target: Target, queue: str = QUEUE) -> None:
    target.create()
    app = App(target.url)

    @app.task(queue=queue, max_attempts=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    async with app:
        target.prepare()
        await work.enqueue_many([{}] * 3)
        await work.options(order_key="a").enqueue_many([{}] * 2)
        await work.options(delay=60, headers={"call": "p1"}).enqueue()
        await work.enqueue(fails=True)


async def drain(target: Target) -> None:
    app = App(target.url)

    @app.task(queue=QUEUE, max_attempts=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    async with app:
        await app.drain(QUEUE)


async def test_it_reads_jobs_attempts_and_effects_past_holdfast(target: Target):
    await prepared(target)
    counted = {state: count for state, count in target.jobs.counts().items() if count}
    assert counted == {"ready": 5, "blocked": 1, "scheduled": 1}

    await drain(target)
    rows = list(target.jobs.rows())
    assert sorted(row.state for row in rows) == ["completed"] * 5 + ["failed", "scheduled"]
    assert [row.call for row in rows if row.state == "scheduled"] == ["p1"]
    assert [len(row.attempts) for row in rows if row.state == "failed"] == [1]
    with target.connection() as connection:
        for _ in range(2):
            connection.execute(target.statements["insert_effect"], (rows[0].job, 1, 5, "w"))
        connection.commit()
    assert target.jobs.effects_seen(0) == (2, 1)
    assert [effect.fence for effect in target.jobs.effects()] == [5, 5]
    assert target.jobs.wrong_steps() == []
    assert list(target.streams.dumped()) == []


async def test_a_run_drops_what_it_has_created_and_nothing_else(target: Target):
    assert target.drop() == NOTHING
    await prepared(target)
    assert target.exists()
    assert "is gone" in target.drop()
    assert not target.exists()


@pytest.mark.parametrize("what", ["create table {}.theirs (x int)", "create view {}.theirs as select 1"])
async def test_a_database_with_anything_else_in_it_is_refused_and_left(target: Target, what: str):
    await prepared(target)
    name = target.url.rpartition("/")[2]
    server = target.url.rpartition("/")[0] + "/"
    mysql.run(server, what.format(name))
    with pytest.raises(Foreign, match="1 jobs, tables or other things"):
        target.drop()
    assert target.exists()


async def test_a_database_that_no_run_has_created_and_jobs_of_others_are_refused(target: Target):
    name = target.url.rpartition("/")[2]
    mysql.run(target.url.rpartition("/")[0] + "/", f"create database {name}")
    with pytest.raises(Foreign, match="was not created by a torture run"):
        target.create()
    mysql.run(target.url.rpartition("/")[0] + "/", f"drop database {name}")
    await prepared(target, "orders")
    with pytest.raises(Foreign):
        target.drop()


def test_two_runs_exclude_each_other(target: Target):
    with target.reserved(), pytest.raises(Reserved), target_of(target.url).reserved():
        pass
    with target.reserved():
        target.require_reservation()


async def test_sessions_of_workers_are_seen_with_their_transactions_and_can_be_ended(target: Target):
    await prepared(target)
    with target.connection() as connection:
        connection.execute(target.statements["insert_effect"], ("a", 1, 5, "w"))
        async with asyncio.timeout(10):
            while target.open_connections() > 1:  # noqa: ASYNC110 - the server is still ending those of the app
                await asyncio.sleep(0.02)
            while target.open_transactions() < 1:  # another test may read the server's list, which keeps it old
                pass
        assert (target.open_connections(), target.open_transactions()) == (1, 1)
        assert target.leftovers().transactions == 1
        assert target.terminate([*target.sessions(), 2**31]) == 1
        with pytest.raises(target.errors):
            connection.commit()
    assert target.jobs.effects_seen(0) == (0, 0)


async def test_a_snapshot_does_not_move_and_the_tables_are_checked(target: Target):
    await prepared(target)
    with target.snapshot() as query:
        before = query.all("count_state", state="job")
        async with App(target.url) as app:
            await app.task(queue=PAUSED, name="later")(lambda: None).enqueue()
        assert query.all("count_state", state="job") == before
    assert target.integrity() == ""
    assert target.versions()["version"]
    assert target.clock() > 10**15


def test_a_socket_and_a_name_that_cannot_be_quoted_are_refused():
    with pytest.raises(ConfigError, match="over TCP"):
        target_of("mysql://root@localhost/shop?socket=/run/mysqld/mysqld.sock")
    with pytest.raises(ConfigError, match="plain name"):
        target_of("mysql://root@localhost/a%60b")
