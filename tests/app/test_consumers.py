"""Consumers at work: nodes in this process, on a real store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from datetime import timedelta

import pytest

from holdfast import App, ConfigError, LeaseLost
from holdfast.model.allocation import Timing
from holdfast.streams.context import EventContext
from holdfast.streams.event import Event

QUICK = Timing().scaled(0.1)  # a dead node is noticed after a second
SOON = 20.0


@pytest.fixture
async def app(tmp_path):
    app = App(f"sqlite:///{tmp_path}/streams.db")
    await app.opened()
    yield app
    await app.close()


async def eventually(look, *, within: float = SOON):
    async with asyncio.timeout(within):
        while not (found := await look()):  # noqa: ASYNC110 - what another node does has no event here
            await asyncio.sleep(0.01)
        return found


@contextlib.asynccontextmanager
async def running(*nodes):
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    try:
        yield
    finally:
        for node in nodes:
            node.stop()
        await asyncio.gather(*tasks)


def drained(app: App, consumer: str = "billing"):
    async def look():
        views = [view for view in await app.consumers.list() if view.name == consumer]
        return views and views[0].shares and views[0].lag == 0

    return look


async def append(app: App, stream: str, count: int, *, category: str = "orders") -> None:
    await app.append_many(
        category, [{"stream": stream, "name": "placed", "payload": {"n": number}} for number in range(count)]
    )


async def test_every_event_is_handled_once_and_in_order(app):
    seen: list[tuple[str, int]] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        seen.append((event.stream, event.payload["n"]))

    for stream in ("a", "b", "c"):
        await append(app, stream, 20)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
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


async def make_effects(app: App) -> None:
    await query(app, "create table effect (event_id text not null, fence integer not null)")


async def effects(app: App) -> int:
    return (await query(app, "select count(*) from effect"))[0][0]


async def query(app: App, sql: str):
    def run():
        with contextlib.closing(sqlite3.connect(app.backend.url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute(sql).fetchall()
            connection.commit()
            return rows

    return await asyncio.to_thread(run)


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


async def test_an_event_that_always_fails_blocks_its_partition_and_no_other(app):
    handled: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01)
    async def billing(event: Event) -> None:
        if event.stream == "bad":
            raise ValueError("no")
        handled.append(event.stream)

    await app.category("orders", partitions=16)
    await append(app, "bad", 2)
    await append(app, "good", 3)
    async with running(app.node(timing=QUICK)):

        async def others():
            return len(handled) == 3

        await eventually(others)
        assert (await app.consumers.show("billing")).lag == 2


async def test_a_skipped_event_is_passed_over(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="skip")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 1:
            raise ValueError("no")
        handled.append(event.payload["n"])

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert handled == [0, 2]


async def test_a_parked_event_holds_back_its_stream_alone_and_can_be_retried_in_order(app):
    handled: list[tuple[str, int]] = []
    healed = False

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="park")
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction():
            if event.stream == "a" and event.payload["n"] == 1 and not healed:
                raise ValueError("no")
            handled.append((event.stream, event.payload["n"]))

    await app.category("orders", partitions=1)
    await append(app, "a", 4)
    await append(app, "b", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert handled == [("a", 0), ("b", 0), ("b", 1)]
        parked = await app.consumers.parked("billing")
        assert [(each.stream, each.attempts) for each in parked] == [("a", 2), ("a", 0), ("a", 0)]
        assert parked[0].failure is not None
        assert parked[0].failure.error_class == "ValueError"
        assert await app.consumers.retry_parked("billing") == 3

        async def failed_again():
            first = (await app.consumers.parked("billing"))[0]
            return first.attempts == 3 and not first.is_retrying

        await eventually(failed_again)
        assert len(await app.consumers.parked("billing")) == 3
        healed = True
        await app.consumers.retry_parked("billing")

        async def flows():
            return not await app.consumers.parked("billing")

        await eventually(flows)
    assert [number for stream, number in handled if stream == "a"] == [0, 1, 2, 3]


async def test_dropped_parked_events_let_their_stream_flow_again(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 0 and event.version == 1:
            raise ValueError("no")
        handled.append(event.version)

    await append(app, "a", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert await app.consumers.drop_parked("billing", stream="a") == 2
        await append(app, "a", 2)

        async def flows():
            return handled == [3, 4]

        await eventually(flows)


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


async def test_the_time_limit_of_an_event_ends_an_async_handler(app):
    tries: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01, timeout=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.sleep(60)

    await append(app, "a", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert tries == [1, 2]


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
