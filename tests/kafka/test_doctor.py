"""What `holdfast doctor` says of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from confluent_kafka import TopicPartition, admin
from tests.kafka.test_consuming import create_again

from holdfast import App, ConfigError
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.reports.doctor_kafka import examine_kafka
from holdfast.reports.finding import FindingLevel
from holdfast.store.foreign_events import FOREIGN_TOPICS, ForeignTopic
from holdfast.store.stream_values import StartAt, Subscription

kafka_admin: Any = admin  # its annotations are partial
HEALTHY = ForeignTopic(category="orders", topic="shop.orders", replicas=3, min_in_sync=2)


def findings(*topics: ForeignTopic) -> dict[str, tuple[FindingLevel, str]]:
    found = examine_kafka({FOREIGN_TOPICS: msgspec.json.encode(topics).decode()})
    return {each.check: (each.verdict, f"{each.text} {each.remedy}") for each in found}


def test_healthy_topics_are_fine():
    assert {level for level, _ in findings(HEALTHY).values()} == {FindingLevel.OK}
    assert examine_kafka({}) == []


@pytest.mark.parametrize(
    ("change", "check", "level", "said"),
    [
        ({"trouble": "topic shop.orders was deleted"}, "topics", FindingLevel.BAD, "was deleted"),
        ({"hidden": "denied"}, "topic settings", FindingLevel.WARN, "denied Give the user DESCRIBE_CONFIGS"),
        ({"replicas": 1}, "replicas", FindingLevel.WARN, "raise the replication factor"),
        ({"min_in_sync": 1}, "in-sync replicas", FindingLevel.WARN, "set min.insync.replicas"),
        ({"added": 3}, "partitions", FindingLevel.WARN, "its order is not kept"),
        ({"stopped": ("billing, partition 0",)}, "positions", FindingLevel.BAD, "consumer reset NAME --to beginning"),
        ({"retention": 100.0, "unread_for": 60.0}, "retention", FindingLevel.BAD, "Raise retention.ms"),
        ({"retention": 100.0, "unread_for": 10.0}, "retention", FindingLevel.OK, "no unread event"),
        ({"retention_bytes": 10**9}, "retention by size", FindingLevel.WARN, "1,000,000,000 bytes"),
    ],
)
def test_a_topic_that_may_lose_events_is_found(change: dict[str, Any], check: str, level: FindingLevel, said: str):
    found = findings(msgspec.structs.replace(HEALTHY, **change))

    assert found[check][0] is level
    assert said in found[check][1]


def test_nothing_is_said_to_be_fine_of_settings_that_may_not_be_read():
    found = findings(msgspec.structs.replace(HEALTHY, hidden="denied", min_in_sync=None))

    assert {"replicas", "retention"}.isdisjoint(found)


def test_a_topic_with_one_replica_hides_no_other():
    single = msgspec.structs.replace(HEALTHY, topic="single", replicas=1, min_in_sync=1)
    alone = msgspec.structs.replace(HEALTHY, topic="alone", min_in_sync=1)

    found = findings(single, alone)

    assert found["replicas"][1].startswith("replication factor 1: single ")
    assert found["in-sync replicas"][1].startswith("min.insync.replicas 1: alone ")


async def test_the_facts_of_an_app_describe_its_topics(
    app: App, client: Any, prefix: str, produce: Callable[..., None]
):
    topic = f"{prefix}orders"
    new = kafka_admin.NewTopic(topic, 1, 1, config={"retention.ms": "3600000", "retention.bytes": "4096"})
    client.create_topics([new])[topic].result(20)
    produce(topic, key=b"a", value=b"1", timestamp=1_000_000_000_000)
    backend = await app.opened()
    await backend.streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)
    await app.consumers.list()  # the ends of the partitions are noted

    found = await facts_of(app)

    assert (found.topic, found.replicas, found.min_in_sync) == (topic, 1, 1)
    assert (found.retention, found.retention_bytes) == (3600.0, 4096)
    assert found.unread_for is not None
    assert found.unread_for > 3600.0


async def test_a_topic_whose_settings_the_user_may_not_read_is_described_without_them(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    await app.category("orders", partitions=1)
    monkeypatch.setattr(KafkaTopics, "settings", AsyncMock(side_effect=ConfigError("the broker denies it")))

    found = await facts_of(app)

    assert (found.trouble, found.hidden, found.replicas, found.min_in_sync) == ("", "the broker denies it", 1, None)


async def facts_of(app: App) -> ForeignTopic:
    (found,) = msgspec.json.decode((await app.backend.insight.facts())[FOREIGN_TOPICS], type=list[ForeignTopic])
    return found


async def test_shares_whose_next_events_are_gone_are_named(app: App, client: Any, prefix: str):
    await app.category("orders", partitions=2)
    for number in range(20):
        await app.append("orders", stream=f"order-{number}", name="placed")
    streams = app.backend.streams
    await streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)
    assert (await facts_of(app)).stopped == ()
    place = TopicPartition(f"{prefix}orders", 1, 3)
    client.delete_records([place])[place].result(20)

    (stopped,) = (await facts_of(app)).stopped

    assert stopped.startswith("billing, partition 1 of orders: position 0, and the topic has 3 to ")
    await app.consumers.reset("billing", "beginning")
    assert (await facts_of(app)).stopped == ()
    await app.consumers.reset("billing", "end")
    assert (await facts_of(app)).stopped == ()


async def test_partitions_that_were_added_are_reported(app: App, client: Any, prefix: str):
    await app.category("orders", partitions=1)
    client.create_partitions([kafka_admin.NewPartitions(f"{prefix}orders", 4)])[f"{prefix}orders"].result(20)

    assert (await facts_of(app)).added == 3


async def test_a_topic_that_was_created_again_is_reported_until_a_reset_accepts_it(app: App, client: Any, prefix: str):
    await app.category("orders", partitions=1)
    await app.backend.streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)
    await create_again(client, f"{prefix}orders")

    level, said = findings(await facts_of(app))["topics"]

    assert level is FindingLevel.BAD
    assert f"topic {prefix}orders was deleted and created again" in said
    await app.consumers.reset("billing", "beginning")
    assert not (await facts_of(app)).trouble
