"""What Kafka cannot do is refused, with the remedy, and nothing is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from holdfast import App, ConfigError, Unsupported
from holdfast.store.stream_values import StartAt, Subscription

admin_client: Any = admin  # its annotations are partial


async def test_an_append_with_an_expected_version_is_refused(app: App):
    with pytest.raises(Unsupported, match=r"Kafka cannot append with expected_version: .*category in the store"):
        await app.append("orders", stream="a", name="placed", expected_version=0)

    await app.category("orders", partitions=1)
    assert len(await app.read("orders")) == 0


async def test_an_append_in_a_transaction_is_refused(app: App, tmp_path: Path):
    await app.category("orders", partitions=1)
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("begin immediate")
    with pytest.raises(ConfigError, match="are not in this store but in Kafka topic"):
        await app.append("orders", stream="a", name="placed", using=connection)
    connection.close()

    assert len(await app.read("orders")) == 0


async def test_one_stream_is_not_read_alone(app: App):
    await app.append("orders", stream="a", name="placed")

    with pytest.raises(Unsupported, match="it has no index by key"):
        await app.read("orders", stream="a")
    streams = (await app.opened()).streams
    for category in ("orders", "unknown"):
        with pytest.raises(Unsupported, match="it has no index by key"):
            await streams.consumers.subscribe("billing", Subscription(category, "a"), StartAt.BEGINNING)


async def test_a_trim_past_unread_events_and_of_a_compacted_topic_is_refused(app: App, client: Any, prefix: str):
    await app.append("orders", stream="a", name="placed")
    with pytest.raises(Unsupported, match="Kafka cannot trim past unread events: trim what all consumers have passed"):
        await app.trim("orders", 0, past_unread=True)
    new = admin_client.NewTopic(f"{prefix}prices", 1, 1, config={"cleanup.policy": "compact"})
    client.create_topics([new])[f"{prefix}prices"].result(20)
    with pytest.raises(Unsupported, match="is compacted: Kafka decides which of its records are kept"):
        await app.trim("prices", 0)

    assert len(await app.read("orders")) == 1


async def test_an_app_without_kafka_does_not_mistake_its_categories_for_empty_ones(app: App, tmp_path: Path):
    await app.append("orders", stream="a", name="placed")
    other = App(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal")
    try:
        for call in (
            other.append("orders", stream="a", name="placed"),
            other.read("orders", partition_id=0),
            other.trim("orders", 0),
        ):
            with pytest.raises(ConfigError, match="give the app the URL of that system too, as in App"):
                await call
    finally:
        await other.close()


async def test_a_category_of_the_store_stays_there_and_keeps_its_features(app: App, tmp_path: Path):
    before = App(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal")
    await before.append("sales", stream="a", name="made")
    await before.close()

    appended = await app.append("sales", stream="a", name="made", expected_version=1)

    assert appended.version == 2
    with pytest.raises(ConfigError, match="cannot be all or none"):
        await app.append_many(
            "sales", [{"stream": "a", "name": "x"}, {"stream": "a", "name": "x", "category": "orders"}]
        )
