"""Kafka alone: its groups assign the partitions, offsets are the positions, and each event is handled at least once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition, admin

from holdfast import App, CategoryNotFound, ConfigError, Event
from holdfast.backends.kafka import buffers
from holdfast.backends.kafka.groups.offsets import CommittedOffset
from holdfast.model.allocation import Grant, ShareState
from holdfast.store.stream_values import Commit, CommitVerdict, ConsumerView
from holdfast.streams.node import Node

kafka_admin: Any = admin  # its annotations are partial
WITHIN = 40.0
Handled = dict[str, list[int]]


@asynccontextmanager
async def an_app(events: str) -> AsyncIterator[App]:
    app = App(streams=events)
    try:
        yield app
    finally:
        await app.close()


def billing(app: App, handled: Handled, **settings: Any) -> None:
    @app.consumer("billing", category="orders", poll_interval=0.1, **settings)
    async def handle(events: list[Event]) -> None:
        for event in events:
            handled[event.stream].append(event.payload)
        await asyncio.sleep(0)


async def append(app: App, numbers: range) -> None:
    made = [{"stream": f"order-{number % 7}", "name": "placed", "payload": number} for number in numbers]
    await app.append_many("orders", made)


async def until(is_true: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN):
        while True:
            answer = is_true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.05)


async def view_of(app: App) -> ConsumerView | None:
    return next((view for view in await app.consumers.list() if view.name == "billing"), None)


async def is_done(app: App) -> bool:
    view = await view_of(app)
    return view is not None and len(view.shares) == 4 and view.lag == 0


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(node.run())
    try:
        yield
    finally:
        node.stop()
        await task


def expected(last: int) -> Handled:
    return {f"order-{n}": [number for number in range(last) if number % 7 == n] for n in range(7)}


async def test_events_are_consumed_in_order_and_positions_survive(events: str):
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled, batch=20)
        await app.category("orders", partitions=4)
        await append(app, range(100))
        async with app.working():
            await until(lambda: is_done(app))
        view = await view_of(app)
    assert handled == expected(100)
    assert view is not None
    assert {share.generation for share in view.shares} == {1}

    async with an_app(events) as app:
        billing(app, handled)
        await append(app, range(100, 120))
        async with app.working():
            await until(lambda: is_done(app))
            view = await view_of(app)
    assert handled == expected(120)  # nothing again, and the generation has grown with the owner
    assert view is not None
    assert {(share.generation, share.state) for share in view.shares} == {(2, ShareState.GRANTED)}


async def test_a_second_node_gets_partitions_and_what_is_handed_over_is_not_repeated(events: str):
    handled: Handled = defaultdict(list)
    async with an_app(events) as first, an_app(events) as second:
        billing(first, handled, batch=5)
        billing(second, handled, batch=5)
        await first.category("orders", partitions=4)
        await append(first, range(50))
        one, two = first.node(), second.node()
        async with running(one):
            await until(lambda: len(one.status().shares) == 4)
            async with running(two):
                await append(first, range(50, 200))
                await until(lambda: len(one.status().shares) == len(two.status().shares) == 2)
                await append(first, range(200, 300))
                await until(lambda: is_done(first))
            await until(lambda: len(one.status().shares) == 4)
            await append(first, range(300, 350))
            await until(lambda: is_done(first))

    assert handled == expected(350)


async def test_a_full_buffer_is_read_on_when_there_is_room(events: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(buffers, "MOST_RECORDS", 20)
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled, batch=8, commit_every=50)
        await app.category("orders", partitions=4)
        await append(app, range(500))
        async with app.working():
            await until(lambda: is_done(app))

    assert handled == expected(500)


@pytest.mark.parametrize("is_queued", [False, True])
async def test_nothing_is_committed_for_a_partition_that_was_lost(events: str, is_queued: bool):
    """Nor if the commit was asked of the member's thread before: the broker takes it from any member."""
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled)
        await app.category("orders", partitions=4)
        node = app.node()
        async with running(node):
            await until(lambda: len(node.status().shares) == 4)
            consumers: Any = app.backend.streams.consumers
            (share,) = [share for share in node.status().shares if share.partition_id == 0]
            grant = Grant(share, 1)
            assert await consumers.verify(grant) == 0
            held = consumers._shares.live(grant)
            consumers._shares.lose([share])

            asked = (
                consumers._members["billing"].commit(held, 1) if is_queued else consumers.commit(grant, Commit(0, 1))
            )
            assert await asked is CommitVerdict.LOST
            assert (await consumers.fetch(grant, after=0, limit=1)).is_lost
        view = await view_of(app)
    assert view is not None
    assert [share.position for share in view.shares] == [0, 0, 0, 0]


async def test_generations_begin_again_where_another_program_has_set_the_offsets(
    events: str, prefix: str, caplog: pytest.LogCaptureFixture
):
    generations: list[list[int]] = []
    for _ in range(3):
        async with an_app(events) as app:
            billing(app, defaultdict(list))
            await app.category("orders", partitions=4)
            node = app.node()
            async with running(node):
                await until(lambda node=node: len(node.status().shares) == 4)
                view = await view_of(app)
                assert view is not None
                generations.append([share.generation for share in view.shares])
            if len(generations) == 2:  # as kafka-consumer-groups --reset-offsets does
                topics: Any = app.backend.streams.topics  # type: ignore[attr-defined]
                assert await topics.set_group_offsets(f"{prefix}billing", [TopicPartition(f"{prefix}orders", 1, 0)])

    assert generations == [[1, 1, 1, 1], [2, 2, 2, 2], [3, 1, 3, 3]]
    (warning,) = [record.getMessage() for record in caplog.records if "another program" in record.getMessage()]
    assert warning.startswith("consumer billing, partition 1: ")


async def test_a_second_process_under_one_node_id_is_refused(events: str):
    handled: Handled = defaultdict(list)
    async with an_app(events) as first, an_app(events) as second:
        billing(first, handled)
        billing(second, handled)
        await first.category("orders", partitions=4)
        one = first.node(node_id="billing-1")
        async with running(one):
            await until(lambda: len(one.status().shares) == 4)
            async with asyncio.timeout(WITHIN):
                with pytest.raises(ConfigError, match="give each process a separate node id"):
                    await second.node(node_id="billing-1").run()
            await append(first, range(20))
            await until(lambda: is_done(first))

    assert handled == expected(20)


async def test_a_new_consumer_starts_where_it_says(events: str, prefix: str):
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled, start="end")
        await app.category("orders", partitions=4)
        await append(app, range(50))

        async def are_readable() -> bool:  # a moment after the commit; until then they are past the end
            return len(await app.read("orders")) == 50

        await until(are_readable)
        node = app.node()
        async with running(node):
            await until(lambda: len(node.status().shares) == 4)
            await append(app, range(50, 60))
            await until(lambda: sum(map(len, handled.values())) >= 10)  # readable a moment after commit
            await until(lambda: is_done(app))
            # Offsets of a group with members stay. Any other refusal is an error: the group would begin elsewhere.
            topics: Any = app.backend.streams.topics  # type: ignore[attr-defined]
            assert not await topics.set_group_offsets(f"{prefix}billing", [TopicPartition(f"{prefix}orders", 0, 0)])
            with pytest.raises(CategoryNotFound, match="set the offsets of group"):
                await topics.set_group_offsets(f"{prefix}other", [TopicPartition(f"{prefix}unknown", 0, 0)])

    assert sorted(number for numbers in handled.values() for number in numbers) == list(range(50, 60))


async def test_a_partition_that_could_not_be_read_is_read_again(
    events: str, prefix: str, caplog: pytest.LogCaptureFixture
):
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled)
        await app.category("orders", partitions=1)
        topics: Any = app.backend.streams.topics  # type: ignore[attr-defined]
        past_the_end = CommittedOffset(3, 0)
        place = TopicPartition(f"{prefix}orders", 0, past_the_end.position, past_the_end.metadata)
        assert await topics.set_group_offsets(f"{prefix}billing", [place])
        with caplog.at_level("ERROR", "holdfast.streams"):
            async with app.working():
                await until(lambda: "has no offset 3" in caplog.text)
                for number in range(5):
                    await app.append("orders", stream="a", name="placed", payload=number)
                await until(lambda: handled["a"] == [3, 4])

    assert caplog.text.count("is stopped") == 1


async def test_partitions_that_are_added_are_consumed_and_listed(events: str, prefix: str, client: Any):
    """By a process that knew the topic before, too."""
    handled: Handled = defaultdict(list)
    async with an_app(events) as app:
        billing(app, handled)
        await app.category("orders", partitions=2)
        await append(app, range(10))
        async with app.working():
            await until(lambda: sum(map(len, handled.values())) == 10)
            added = client.create_partitions([kafka_admin.NewPartitions(f"{prefix}orders", 4)])
            added[f"{prefix}orders"].result(20)
            await append(app, range(10, 40))
            await until(lambda: is_done(app))

    assert sorted(number for numbers in handled.values() for number in numbers) == list(range(40))


async def test_a_category_without_a_valid_topic_is_refused(events: str):
    async with an_app(events) as app:
        with pytest.raises(ConfigError, match="is not a valid Kafka topic name"):
            await app.append("orders:eu", stream="a", name="placed")

        @app.consumer("billing", category="orders:eu")
        async def handle(event: Event) -> None: ...

        async with asyncio.timeout(WITHIN):
            with pytest.raises(ConfigError, match="is not a valid Kafka topic name"):
                await app.node().run()


@pytest.mark.parametrize("others", [{"url": "sqlite:///jobs.db"}, {}])
def test_kafka_alone_has_no_store_beside_it(events: str, others: dict[str, str]):
    with pytest.raises(ConfigError, match=r"unset \$HOLDFAST_URL|Kafka without a store"):
        App(*others.values(), streams=events).use("sqlite:///jobs.db")
