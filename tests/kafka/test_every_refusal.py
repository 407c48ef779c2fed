"""Each thing that Kafka cannot do, next to a store and alone, is refused with its reason and remedy."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, admin

from holdfast import App, Event, Unsupported
from holdfast.backends.kafka.events import REFUSALS
from holdfast.backends.kafka.groups.refusals import GROUP_REFUSALS
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.model.allocation import Grant, Share
from holdfast.store.capabilities import CHILD_PROCESSES, JOBS, PARK
from holdfast.store.stream_values import StartAt, Subscription

Case = Callable[[App], Awaitable[object]]
kafka_admin: Any = admin  # its annotations are partial
ONE: dict[str, Any] = {"stream": "a", "name": "placed"}


@pytest.fixture
async def alone(events: str) -> AsyncIterator[App]:
    app = App(streams=events)
    yield app
    await app.close()


def billing(event: Event) -> None: ...


async def start(app: App, **settings: Any) -> None:
    """Start a node with a consumer of these settings."""
    app.consumer("billing", **settings)(billing)
    await app.node().run()


def make_topic(app: App, category: str, **config: str) -> tuple[KafkaLocation, str]:
    """Create a topic as others do."""
    location = KafkaLocation.parse(app.events_url or str(app.backend.full_url))
    topic = location.topic(category)
    client = kafka_admin.AdminClient({"bootstrap.servers": location.servers})
    client.create_topics([kafka_admin.NewTopic(topic, 1, 1, config=config)])[topic].result(20)
    return location, topic


async def join_a_transaction(app: App) -> None:
    file = (await app.opened()).file
    with sqlite3.connect(file or ":memory:", isolation_level=None) as connection:
        connection.execute("begin immediate")
        await app.append("orders", **ONE, using=connection)


async def read_one_stream(app: App) -> None:
    consumers = (await app.opened()).streams.consumers
    for category in ("orders", "unknown"):
        with pytest.raises(Unsupported, match="it has no index by key"):
            await consumers.subscribe("billing", Subscription(category, "a"), StartAt.BEGINNING)
    await app.read("orders", stream="a")


async def trim_compacted(app: App) -> None:
    make_topic(app, "prices", **{"cleanup.policy": "compact"})
    await app.trim("prices", 0)


async def commit_effects(app: App) -> None:
    consumers = (await app.opened()).streams.consumers
    async with consumers.begin(Grant(Share("billing", "orders", 0), 1), limit=timedelta(1)):
        raise AssertionError


async def use_jobs(app: App) -> None:
    @app.task
    async def charge() -> None: ...

    for call in (charge.enqueue(), app.queues.list(), app.jobs.list("ready"), app.rescue()):
        with pytest.raises(Unsupported, match="give the app a SQL store"):
            await call
    with pytest.raises(Unsupported, match="give the app a SQL store"):
        app.worker()
    await app.leases()


async def change_a_consumer(app: App) -> None:
    consumers = (await app.opened()).streams.consumers
    for call in (consumers.resume("billing"), consumers.reset("billing", StartAt.END), consumers.forget("billing")):
        with pytest.raises(Unsupported, match="kafka-consumer-groups"):
            await call
    await app.consumers.pause("billing")


async def recognise_no_id(app: App) -> None:
    known = "00000000-0000-0000-0000-000000000001"
    appended = [await app.append("orders", **ONE, event_id=known) for _ in range(2)]
    assert [(each.version, each.is_new) for each in appended] == [(0, True)] * 2


async def keep_the_time_of_a_producer(app: App) -> None:
    location, topic = make_topic(app, "dated", **{"message.timestamp.type": "CreateTime"})
    producer = Producer({"bootstrap.servers": location.servers})
    producer.produce(topic, b"1", timestamp=1_000_000_000_000)
    assert producer.flush(20) == 0
    await app.category("dated")  # adopts the topic
    (event,) = await app.read("dated", partition_id=0)
    assert event.recorded_at.year == 2001


FACTS: dict[str, Case] = {
    "count events": recognise_no_id,
    "record events by the clock of the store": keep_the_time_of_a_producer,
}
"""Refusals of no call: what the conformance suite is to know, and how an app sees it."""
CASES: dict[str, Case] = {
    "append with expected_version": lambda app: app.append("orders", **ONE, expected_version=0),
    "join a transaction": join_a_transaction,
    "read one stream": read_one_stream,
}
NEXT_TO_A_STORE: dict[str, Case] = {
    **CASES,
    "trim a compacted topic": trim_compacted,
    "trim past unread events": lambda app: app.trim("orders", 0, past_unread=True),
}
ALONE: dict[str, Case] = {
    **CASES,
    JOBS: use_jobs,
    PARK: lambda app: start(app, category="orders", on_error="park"),
    CHILD_PROCESSES: lambda app: start(app, category="orders", executor="process"),
    "commit effects": commit_effects,
    "read the log": lambda app: start(app, log=True),
    "pause and reset consumers": change_a_consumer,
    "trim": lambda app: app.trim("orders", 0),
}


async def check(app: App, what: str, reason: str, cases: Mapping[str, Case]) -> None:
    """Run the case of a refusal; one without a case fails."""
    await app.category("orders", partitions=1)
    if what in FACTS:
        await FACTS[what](app)
        return
    with pytest.raises(Unsupported, match=re.escape(f"cannot {what}: {reason}")):
        await cases[what](app)
    assert len(await app.read("orders")) == 0


@pytest.mark.parametrize("what", REFUSALS)
async def test_what_kafka_cannot_do_is_refused_with_the_remedy(app: App, what: str):
    await check(app, what, REFUSALS[what], NEXT_TO_A_STORE)


@pytest.mark.parametrize("what", GROUP_REFUSALS)
async def test_what_kafka_alone_cannot_do_is_refused_with_the_remedy(alone: App, what: str):
    await check(alone, what, GROUP_REFUSALS[what], ALONE)
