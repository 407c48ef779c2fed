"""A relay copies a category of the store to a topic: each event once and in order, whatever ends in between."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin
from tests.kafka.records import SeenRecord, records_of

from holdfast import App, ConfigError, Event, EventContext, LeaseLost, StoreUnavailable
from holdfast.app.relays import CategoryRelay, unsent
from holdfast.model.allocation import Grant
from holdfast.model.event import StoredEvent
from holdfast.store.relays import SentUpTo
from holdfast.store.stream_values import Commit
from holdfast.streams.effect import EventEffect

kafka_admin: Any = admin  # its annotations are partial
WITHIN = 30.0


@pytest.fixture
def topic(prefix: str) -> str:
    return f"{prefix}shop.orders"


@pytest.fixture
async def app(tmp_path: Path, events: str, topic: str) -> AsyncIterator[App]:
    app = App(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")
    app.relay("orders", topic=topic, to=events, batch=20, poll_interval=0.1)
    yield app
    await app.close()


async def append(app: App, numbers: range, streams: int = 5) -> None:
    made = [{"stream": f"order-{n % streams}", "name": "placed", "payload": {"number": n}} for n in numbers]
    await app.append_many("orders", made)


async def until_relayed(app: App) -> None:
    async with asyncio.timeout(WITHIN):
        while True:
            views = [view for view in await app.consumers.list() if view.name == "relay:orders"]
            if views and views[0].shares and views[0].lag == 0:
                return
            await asyncio.sleep(0.05)


def numbers_of(records: list[SeenRecord]) -> dict[str, list[int]]:
    """Return the numbers of the events by stream, in the order of the topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in records:
        found[record.key].append(json.loads(record.value)["number"])
    return found


async def stored_in(app: App, partition_id: int) -> list[StoredEvent]:
    return await (await app.opened()).streams.events.read("orders", partition_id, after=0, limit=1000)


def relay_of(app: App) -> CategoryRelay:
    relay = app.relays.find("relay:orders")
    assert relay is not None
    return relay


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-relay-")]


async def test_events_of_a_transaction_reach_the_topic_in_order_if_it_commits(
    app: App, servers: str, topic: str, tmp_path: Path
):
    await app.category("orders", partitions=3)
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        for number, end in enumerate(("commit", "rollback", "commit")):
            connection.execute("begin immediate")
            made = {"stream": "order-0", "name": "placed", "payload": {"number": number}, "headers": {"by": "shop"}}
            await app.append_many("orders", [made], using=connection)
            connection.execute(end)
    await append(app, range(3, 60))

    async with app.working():
        await until_relayed(app)
        assert senders()
    async with asyncio.timeout(WITHIN):
        while senders():  # noqa: ASYNC110 - each ends in its thread, after its share
            await asyncio.sleep(0.02)

    records = records_of(servers, topic)
    assert numbers_of(records) == {
        "order-0": [0, 2, *range(5, 60, 5)],
        **{f"order-{n}": [number for number in range(3, 60) if number % 5 == n] for n in range(1, 5)},
    }
    stored = {event.id: event for number in range(3) for event in await stored_in(app, number)}
    for record in records:  # partition to partition, and every fact of the event is with its record
        event = stored.pop(record.headers["holdfast-id"])
        assert (record.partition_id, record.key) == (event.partition_id, event.stream)
        assert record.headers["holdfast-name"] == "placed"
        assert record.headers["holdfast-version"] == str(event.version)
    assert not stored
    assert sum(record.headers.get("by") == "shop" for record in records) == 2


async def test_a_crash_between_the_commits_of_kafka_and_of_the_store_sends_nothing_twice(
    app: App, servers: str, topic: str
):
    await app.category("orders", partitions=1)
    await append(app, range(30), streams=2)
    relay = relay_of(app)
    await relay.prepare()
    stored = await stored_in(app, 0)
    await relay.target.begin(0, 1)
    await relay.target.send(0, 1, stored[:17])  # and the process dies before its position is written

    async with app.working():
        await until_relayed(app)

    assert [json.loads(record.value)["number"] for record in records_of(servers, topic)] == list(range(30))


async def test_a_relay_that_begins_while_no_broker_answers_creates_the_topic_later(
    app: App, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
):
    await append(app, range(6))
    target = relay_of(app).target
    check, calls = target.check, 0

    async def unanswered_at_first(*categories: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StoreUnavailable("no broker answers")
        await check(*categories)

    monkeypatch.setattr(target, "check", unanswered_at_first)
    async with app.working():
        await until_relayed(app)

    assert len(records_of(servers, topic)) == 6


async def test_a_sender_whose_share_was_taken_is_fenced_and_its_successor_knows_what_it_has_sent(
    app: App, events: str, servers: str, topic: str, tmp_path: Path
):
    await app.category("orders", partitions=1)
    await append(app, range(9))
    stored = await stored_in(app, 0)
    zombie = relay_of(app)
    await zombie.prepare()
    assert await zombie.target.begin(0, 1) == SentUpTo()
    await zombie.target.send(0, 1, stored[:3])
    other = App(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")
    other.relay("orders", topic=topic, to=events)
    owner = relay_of(other)
    try:
        assert await owner.target.begin(0, 2) == SentUpTo(3, stored[2].id)
        with pytest.raises(StoreUnavailable, match="another process sends to it by now"):
            await zombie.target.send(0, 1, stored[3:6])
        await owner.target.send(0, 2, stored[3:6])

        # A zombie that begins again fences the owner, but sees what it has sent; so does the owner afterwards.
        assert await zombie.target.begin(0, 1) == SentUpTo(6, stored[5].id)
        await zombie.target.send(0, 1, stored[6:7])
        with pytest.raises(StoreUnavailable, match="another process sends to it by now"):
            await owner.target.send(0, 2, stored[6:])
        sent = await owner.target.begin(0, 2)
        await owner.target.send(0, 2, unsent(stored, sent))
    finally:
        await other.close()

    assert [json.loads(record.value)["number"] for record in records_of(servers, topic)] == list(range(9))


async def test_a_reset_sends_again_from_where_it_says(app: App, servers: str, topic: str):
    await app.category("orders", partitions=1)
    await append(app, range(6))
    async with app.working():
        await until_relayed(app)
        await app.consumers.reset("relay:orders", 4)
        await until_relayed(app)

    assert [json.loads(record.value)["number"] for record in records_of(servers, topic)] == [*range(6), 4, 5]


async def test_a_node_that_was_frozen_until_after_a_reset_sends_nothing(app: App, servers: str, topic: str):
    await app.category("orders", partitions=1)
    await append(app, range(6))
    async with app.working():
        await until_relayed(app)
        (share,) = (await app.consumers.show("relay:orders")).shares
    last = [Event(event) for event in (await stored_in(app, 0))[-1:]]
    grant = Grant(share.share, share.generation)
    effect = EventEffect(app.backend, grant, Commit(5, 6), timedelta(seconds=1))
    await app.consumers.reset("relay:orders", 4)

    with pytest.raises(LeaseLost, match="partition 0 of orders was taken"):
        await relay_of(app).send(last, EventContext(effect, 1))

    async with app.working():
        await until_relayed(app)
    assert [json.loads(record.value)["number"] for record in records_of(servers, topic)] == [*range(6), 4, 5]


async def test_a_reset_without_the_app_that_knows_the_topic_is_refused(app: App, tmp_path: Path):
    await append(app, range(1))
    async with app.working():
        await until_relayed(app)
    plain = App(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")
    try:
        with pytest.raises(ConfigError, match=r"consumer reset relay:orders --app module:app"):
            await plain.consumers.reset("relay:orders", "beginning")
        assert not (await plain.consumers.show("relay:orders")).paused
    finally:
        await plain.close()


async def test_a_store_that_was_restored_from_a_backup_does_not_drop_its_new_events(
    app: App, servers: str, topic: str, caplog: pytest.LogCaptureFixture
):
    await app.category("orders", partitions=1)
    await append(app, range(5))
    relay = relay_of(app)
    await relay.prepare()
    sent = [*await stored_in(app, 0), *lost_events()]  # two more than the restored store has
    await relay.target.begin(0, 1)
    await relay.target.send(0, 1, sent)
    await append(app, range(5, 9))  # takes the positions of the lost ones

    with caplog.at_level(logging.WARNING, "holdfast.streams"):
        async with app.working():
            async with asyncio.timeout(WITHIN):
                while "was it restored from a backup" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0.05)

    assert len(records_of(servers, topic)) == 7
    assert (await app.consumers.show("relay:orders")).lag == 9


def lost_events() -> list[StoredEvent]:
    return [
        StoredEvent(f"00000000-0000-7000-8000-00000000000{n}", "orders", "a", "placed", n, 0, n, "1", None, 0)
        for n in (6, 7)
    ]


@pytest.mark.parametrize(("partitions", "found"), [(2, 2), (None, 3)])
async def test_a_topic_with_another_number_of_partitions_is_refused(
    app: App, client: Any, topic: str, partitions: int | None, found: int
):
    """A category that does not exist yet gets as many partitions as the topic has."""
    client.create_topics([kafka_admin.NewTopic(topic, 3, 1)])[topic].result(20)
    if partitions is not None:
        await app.category("orders", partitions=partitions)
        with pytest.raises(ConfigError, match=r"has 3 partitions, and category 'orders' has 2: .*Name a topic"):
            await app.node().run()
    else:
        await relay_of(app).prepare()

    assert (await app.category("orders")).partitions == found


async def test_a_category_has_one_home(tmp_path: Path, events: str, prefix: str, servers: str):
    app = App(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal", events=events)
    try:
        await app.append("direct", stream="a", name="placed")
        app.relay("orders", topic=f"{prefix}direct")
        app.relay("direct", topic=f"{prefix}other")
        with pytest.raises(ConfigError, match="keeps the events of category 'direct'"):
            await relay_of(app).prepare()
        with pytest.raises(ConfigError, match="a relay copies a category of the store"):
            await CategoryRelay(app, "direct", relay_of(app).target).prepare()

        # A category that is relayed stays in the store, though new ones have their events in Kafka.
        assert (await app.append("orders", stream="a", name="placed", expected_version=0)).version == 1
        assert (await app.append("orders", stream="a", name="paid", expected_version=1)).version == 2
        assert f"{prefix}orders" not in await_topics(servers)
    finally:
        await app.close()


def await_topics(servers: str) -> set[str]:
    return set(kafka_admin.AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).topics)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.relay("orders", topic="a"), "needs the URL of Kafka"),
        (lambda app: app.relay("orders", topic="a b", to="kafka://h"), "is not a valid Kafka topic name"),
        (lambda app: app.consumer("relay:x", category="x"), r"are those of app\.relay"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    tmp_path: Path, declare: Callable[[App], object], message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("HOLDFAST_EVENTS_URL", raising=False)
    with pytest.raises(ConfigError, match=message):
        declare(App(f"sqlite:///{tmp_path / 'shop.db'}"))
