"""Consumers at work: nodes in this process, on a real store."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from tests.app.stream_work import QUICK, append, drained, effects, eventually, make_effects, query, running

from holdfast import App, ConfigError, Event, EventContext, LeaseLost, StoreUnavailable


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    return file_app


async def test_every_event_is_handled_once_and_in_order(app):
    seen: list[tuple[str, int]] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        seen.append((event.stream, event.payload["n"]))

    for stream in ("a", "b", "c"):
        await append(app, stream, 20)
    node = app.node(node_id="billing-1", timing=QUICK)
    async with running(node):
        await eventually(drained(app))
        status = node.status()
    assert (status.node.node_id, status.is_running, status.is_leader, status.handled) == ("billing-1", True, True, 60)
    assert not node.status().is_running
    assert len(seen) == 60
    for stream in ("a", "b", "c"):
        assert [number for name, number in seen if name == stream] == list(range(20))


async def test_effect_and_position_commit_together(app):
    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effect (event_id, fence) values (?, ?)", (event.id, ctx.fence))

    await make_effects(app)
    await append(app, "a", 30)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert await effects(app) == 30


async def test_an_event_whose_effect_is_committed_is_not_handled_again_when_the_store_fails_afterwards(app):
    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effect (event_id, fence) values (?, ?)", (event.id, ctx.fence))
        raise StoreUnavailable("of a call after the commit")

    await make_effects(app)
    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert await effects(app) == 3


async def test_a_handler_in_a_thread_has_its_blocking_transaction(app):
    threads: set[str] = set()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event, ctx: EventContext) -> None:
        threads.add(threading.current_thread().name)
        with ctx.sync.transaction() as connection:
            connection.execute("insert into effect (event_id, fence) values (?, ?)", (event.id, ctx.fence))

    await make_effects(app)
    await append(app, "a", 5)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert await effects(app) == 5
    assert threading.main_thread().name not in threads


async def test_a_handler_that_takes_a_list_gets_batches(app):
    sizes: list[int] = []

    @app.consumer("billing", category="orders", batch=10, poll_interval=0.05)
    async def billing(events: list[Event], ctx: EventContext) -> None:
        sizes.append(len(events))
        async with ctx.transaction() as connection:
            await connection.executemany(
                "insert into effect (event_id, fence) values (?, ?)", [(event.id, ctx.fence) for event in events]
            )

    await make_effects(app)
    await app.category("orders", partitions=1)
    await append(app, "a", 25)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert sizes == [10, 10, 5]
    assert await effects(app) == 25


async def test_the_position_is_written_after_so_many_events_however_they_come(app):
    uncommitted: list[int] = []

    @app.consumer("billing", category="orders", batch=5, commit_every=10, commit_interval=60, poll_interval=0.05)
    async def billing(events: list[Event]) -> None:
        committed = (await app.consumers.show("billing")).shares[0].position
        uncommitted.append(events[-1].position - committed)

    await app.category("orders", partitions=1)
    await append(app, "a", 30)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert uncommitted == [5, 10, 5, 10, 5, 10]


async def test_a_class_with_a_method_handle_is_a_consumer(app):
    seen = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    class Billing:
        def __init__(self) -> None:
            self.count = 0

        async def handle(self, event: Event, ctx: EventContext) -> None:
            self.count += 1
            seen.append((ctx.consumer, self.count))

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert seen == [("billing", 1), ("billing", 2), ("billing", 3)]


async def test_two_nodes_share_the_partitions_and_a_stopped_one_hands_its_part_over(tmp_path):
    url = f"sqlite:///{tmp_path}/streams.db"
    seen: list[str] = []
    apps = [App(url), App(url)]
    for app in apps:

        @app.consumer("billing", category="orders", poll_interval=0.05)
        async def billing(event: Event) -> None:
            seen.append(event.id)

    first, second = (app.node(node_id=name, timing=QUICK) for app, name in zip(apps, "ab", strict=True))
    await apps[0].category("orders", partitions=8)
    async with running(first):
        async with running(second):

            async def shared():
                return [len(node.status().shares) for node in (first, second)] == [4, 4]

            await eventually(shared)
            for stream in range(16):
                await append(apps[0], f"s{stream}", 5)
            await eventually(drained(apps[0]))

        async def moved():
            return len(first.status().shares) == 8

        await eventually(moved)
        for stream in range(16):
            await append(apps[0], f"s{stream}", 5)
        await eventually(drained(apps[0]))
    assert len(seen) == len(set(seen)) == 160
    for app in apps:
        await app.close()


async def test_a_consumer_can_be_reset_while_it_runs_and_sees_what_was_replayed(app):
    seen: list[tuple[int, bool]] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        seen.append((event.version, event.is_replayed))

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        await app.consumers.reset("billing", "beginning")
        await eventually(drained(app))
        await append(app, "a", 1)
        await eventually(drained(app))
    assert seen == [(1, False), (2, False), (3, False), (1, True), (2, True), (3, True), (4, False)]


async def test_jobs_enqueued_inside_the_transaction_are_there_once(app):
    @app.task
    async def mail(event_id: str) -> None:
        pass

    fails = {"left": 2}

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01)
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction():
            await mail.enqueue(event_id=event.id)
            if fails["left"]:
                fails["left"] -= 1
                raise ValueError("after the enqueue")

    await append(app, "a", 5)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert len((await app.jobs.list("ready")).jobs) == 5


async def test_a_consumer_of_the_log_reads_categories_made_later(app):
    seen: list[str] = []

    @app.consumer("audit", log=True, poll_interval=0.05, start="end")
    async def audit(event: Event) -> None:
        seen.append(event.category)

    await append(app, "a", 2, category="before")
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app, "audit"))
        await append(app, "a", 1, category="before")
        await append(app, "a", 2, category="after")

        async def all_seen():
            return sorted(seen) == ["after", "after", "before"]

        await eventually(all_seen)


async def test_a_consumer_of_one_stream_reads_nothing_else(app):
    seen: list[tuple[str, int]] = []

    @app.consumer("watch", category="orders", stream="a", poll_interval=0.05)
    async def watch(event: Event) -> None:
        seen.append((event.stream, event.version))

    await append(app, "b", 3)
    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app, "watch"))
    assert seen == [("a", 1), ("a", 2), ("a", 3)]


async def test_a_share_that_was_taken_away_cannot_be_committed(app):
    begun = asyncio.Event()
    go_on = asyncio.Event()
    endings: list[type[BaseException]] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event, ctx: EventContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        try:
            with ctx.sync.transaction() as connection:
                connection.execute("insert into effect (event_id, fence) values (?, ?)", (event.id, ctx.fence))
        except LeaseLost as error:
            endings.append(type(error))
            raise

    loop = asyncio.get_running_loop()
    await make_effects(app)
    await append(app, "a", 1)
    async with running(app.node(timing=QUICK)):
        await begun.wait()
        await query(app, "update holdfast_allocation set generation = generation + 1, state = 'free', owner = null")
        go_on.set()

        async def refused():
            return endings

        await eventually(refused)
        await eventually(drained(app))
    assert await effects(app) == 1


async def test_without_consumers_there_is_no_node(app):
    with pytest.raises(ConfigError, match="no consumer"):
        app.node()


async def test_old_events_are_trimmed_once_every_consumer_has_passed_them(app):
    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        pass

    await append(app, "a", 5)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    await app.consumers.pause("billing")
    await append(app, "a", 5)
    assert await app.trim("orders", timedelta(0)) == 5
    assert len(await app.read("orders", stream="a")) == 5
