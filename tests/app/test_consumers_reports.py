"""The reports of nodes on a file: they get through beside slow transactions, and are no more than they need be."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter

import pytest
from tests.app.stream_work import append, drained, eventually, make_effects, query, running

from holdfast import App, Event, EventContext, StoreUnavailable, Timing
from holdfast.backends.sqlite.jobs import SqliteExtender
from holdfast.runtime.uptime import uptime

TIMING = Timing().scaled(0.2)  # a heartbeat every 0.2 s, sure of its shares for 1.4 s after each
INSERT = "insert into effect (event_id, fence) values (?, ?)"


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    return file_app


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "seconds", "each"),
    [(1, 0.9, 4), (8, 0.2, 3)],
    ids=["long ones, one after the other", "short ones that stand in line"],
)
async def test_slow_transactions_of_handlers_do_not_keep_a_node_from_reporting(app, partitions, seconds, each):
    tries: Counter[str] = Counter()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        tries[event.id] += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (event.id, ctx.fence))
            await asyncio.sleep(seconds)

    @app.consumer("audit", category="orders", poll_interval=0.05)
    async def audit(event: Event) -> None:
        """Its positions are committed by themselves, and stand in line with the transactions."""

    await make_effects(app)
    await app.category("orders", partitions=partitions)
    for number in range(partitions):
        await append(app, f"s{number}", each)
    async with running(app.node(timing=TIMING)):
        await eventually(drained(app))
    assert set(tries.values()) == {1}, "a handler was broken off"


async def test_a_transaction_that_is_too_slow_is_an_attempt_that_failed_and_not_the_end_of_all_reports(app):
    attempts: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01, max_attempts=2, on_error="skip")
    async def billing(event: Event, ctx: EventContext) -> None:
        attempts.append(ctx.attempt)
        async with ctx.transaction():
            await asyncio.sleep(TIMING.self_fence.total_seconds() - TIMING.heartbeat_every.total_seconds())

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    async with running(app.node(timing=TIMING)):
        await eventually(drained(app))
    assert attempts == [1, 2]


@pytest.mark.slow
async def test_of_two_nodes_on_one_file_neither_is_silenced_by_the_transactions_of_the_other(tmp_path):
    url = f"sqlite:///{tmp_path}/streams.db?synchronous=normal"
    tries: Counter[str] = Counter()
    apps = [App(url), App(url)]
    for app in apps:

        @app.consumer("billing", category="orders", poll_interval=0.05)
        async def billing(event: Event, ctx: EventContext) -> None:
            tries[event.id] += 1
            async with ctx.transaction():
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.3)  # else SQLite's lock, which knows no order, may never be the other's

    nodes = [app.node(node_id=name, timing=TIMING) for app, name in zip(apps, "ab", strict=True)]
    await apps[0].category("orders", partitions=2)
    async with running(*nodes):

        async def shared():
            return [len(node.status().shares) for node in nodes] == [1, 1]

        await eventually(shared)
        for number in range(6):
            await append(apps[0], f"s{number}", 1)
        await eventually(drained(apps[0]))
    assert set(tries.values()) == {1}, "a handler was broken off"
    for app in apps:
        await app.close()


async def commits(app: App, seconds: float) -> int:
    """Count the changes of the file that can be told apart by looking every millisecond."""

    def count() -> int:
        path = app.backend.url.removeprefix("sqlite:///").partition("?")[0]
        with contextlib.closing(sqlite3.connect(path)) as connection:
            versions = set()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                versions.add(connection.execute("pragma data_version").fetchone()[0])
                time.sleep(0.001)
            return len(versions) - 1

    return await asyncio.to_thread(count)


@pytest.mark.slow
async def test_an_idle_node_writes_once_for_each_beat_and_each_pass_and_reads_at_its_poll_interval(app):
    looks: list[float] = []
    timing = Timing(heartbeat_every=1.0, allocate_every=1.0)

    @app.consumer("billing", category="orders", poll_interval=60)
    async def billing(event: Event) -> None:
        pass

    await app.category("orders", partitions=2)
    consumers = type(app.backend.streams.consumers)
    fetch = consumers.fetch

    async def counted(self, grant, **rest):
        looks.append(time.monotonic())
        return await fetch(self, grant, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumers, "fetch", counted)
        node = app.node(timing=timing)
        async with running(node):
            await eventually(lambda: _holds(node, 2))
            await asyncio.sleep(0.5)
            looks.clear()
            assert await commits(app, 4.0) <= 10  # 4 or 5 reports, and as many passes
            assert looks == [], "nobody had written anything for it, and yet it looked for events"


async def _holds(node, count):
    return len(node.status().shares) == count


async def test_what_is_granted_or_revoked_is_acted_on_at_the_hint_and_not_at_the_next_report(app):
    timing = Timing(heartbeat_every=3.0, self_fence=10.0, ttl=20.0, allocate_every=0.05)

    @app.consumer("billing", category="orders", poll_interval=60)
    async def billing(event: Event) -> None:
        pass

    await app.category("orders", partitions=2)
    node = app.node(timing=timing)
    async with running(node):
        await eventually(lambda: _holds(node, 2))
        for _ in range(2):
            await app.consumers.pause("billing")
            await eventually(lambda: _holds(node, 0), within=1.5)
            await app.consumers.resume("billing")
            await eventually(lambda: _holds(node, 2), within=1.5)


async def test_what_another_process_writes_is_noticed_though_our_own_reports_are_not(tmp_path):
    url = f"sqlite:///{tmp_path}/streams.db?synchronous=normal"
    app, other = App(url), App(url)
    seen: list[float] = []

    @app.consumer("billing", category="orders", poll_interval=60)
    async def billing(event: Event) -> None:
        seen.append(time.monotonic() - sent)

    await app.category("orders", partitions=1)
    timing = Timing(heartbeat_every=0.01, allocate_every=0.01)  # most commits are our own, some close to another's
    node = app.node(timing=timing)
    async with running(node):
        await eventually(lambda: _holds(node, 1))
        for number in range(100):
            sent = time.monotonic()
            await append(other, f"s{number}", 1)
            await eventually(lambda expected=number + 1: _saw(seen, expected))
    assert max(seen) < 1.0
    for each in (app, other):
        await each.close()


async def _saw(seen, count):
    return len(seen) == count


async def test_a_node_that_the_store_has_forgotten_learns_of_it_at_the_next_report(app):
    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        pass

    node = app.node(timing=TIMING)
    await append(app, "a", 1)
    async with running(node):
        await eventually(drained(app))
        await query(app, "delete from holdfast_node")
        await append(app, "a", 1)

        async def back():
            return [view.node for view in await app.nodes()] == [node.node]

        await eventually(back)
        await eventually(drained(app))


async def test_a_node_that_wakes_from_a_long_sleep_and_cannot_report_does_not_go_on_as_if_no_time_had_passed(
    app, monkeypatch
):
    begun, broken_off = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        handled.append(event.id)
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            broken_off.set()
            raise

    def fail(*_):
        raise StoreUnavailable("the network is not up yet")

    timing = Timing(heartbeat_every=0.2, self_fence=30, ttl=60)
    await append(app, "a", 2)
    run = asyncio.create_task(app.node(timing=timing).run())
    await begun.wait()
    with monkeypatch.context() as patch:
        patch.setattr(SqliteExtender, "node_heartbeat", fail)
        patch.setattr("holdfast.streams.node.uptime", lambda: uptime() + 3600)
        async with asyncio.timeout(3):
            await broken_off.wait()
        await asyncio.sleep(0.5)
        assert len(handled) == 1
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run
