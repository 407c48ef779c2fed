"""Faults that need no broker of their own: open transactions, poison, backups, slow shares, deleted topics."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, admin
from tests.kafka.test_consuming import a_consumer, until, until_lag, view_of

from holdfast import App, CategoryNotFound, Event, EventContext
from holdfast.backends.kafka import buffers
from holdfast.backends.kafka.reading import AT_ONCE

kafka_admin: Any = admin  # its annotations are partial


async def test_records_after_an_open_transaction_wait_for_its_end(app: App, servers: str, prefix: str):
    await app.category("orders", partitions=1)
    hanging = Producer({"bootstrap.servers": servers, "transactional.id": f"{prefix}hanging"})
    hanging.init_transactions(20)
    hanging.begin_transaction()
    hanging.produce(f"{prefix}orders", b"1", b"a")
    assert hanging.flush(20) == 0
    await app.append("orders", stream="a", name="placed", payload=2)
    handled = a_consumer(app)

    async with app.working():
        view = await until_lag(app, "billing")  # the end that readers see is before the transaction
        assert (view.shares[0].position, handled) == (0, [])
        hanging.commit_transaction(20)
        await until(lambda: len(handled) == 2)

    assert [event.payload for event in handled] == [1, 2]


async def test_records_after_a_transaction_that_hangs_wait_no_longer_than_its_time_limit(
    app: App, servers: str, prefix: str
):
    await app.category("orders", partitions=1)
    limit = {"transaction.timeout.ms": 1000}
    hanging = Producer({"bootstrap.servers": servers, "transactional.id": f"{prefix}hanging", **limit})
    hanging.init_transactions(20)
    hanging.begin_transaction()
    hanging.produce(f"{prefix}orders", b"1", b"a")
    assert hanging.flush(20) == 0
    await app.append("orders", stream="a", name="placed", payload=2)
    handled = a_consumer(app)

    async with app.working():
        await until(lambda: len(handled) > 0)
        await until_lag(app, "billing")

    assert [event.payload for event in handled] == [2]  # what hung was aborted


POISON: tuple[dict[str, Any], ...] = (
    {"key": b"", "value": b""},
    {"key": b"nul\0", "value": b"\0"},
    {"key": b"\xff\xfe", "value": b"\xff"},
    {"key": "ß".encode() * 300, "value": b"{"},
    {"key": b"k" * 5000, "value": b'"\\ud800"'},
    {"key": b"a", "value": None},
    {"key": None, "value": b"1" * 400},
    {"key": b"a", "value": b"1", "headers": [("holdfast-version", b"9" * 5000), ("holdfast-id", b"\0")]},
    {"key": b"b", "value": b"1", "headers": [("holdfast-name", b"\0"), ("x\ty", b"\0\xff"), ("none", None)]},
)


@pytest.mark.parametrize("store", ["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
async def test_no_record_of_others_stops_a_consumer(app: App, prefix: str, produce: Callable[..., None]):
    chance = random.Random(7)
    noise = [{"key": chance.randbytes(9), "value": chance.randbytes(chance.randrange(40))} for _ in range(20)]
    seen: list[int] = []

    @app.consumer("billing", category="orders", on_error="park", max_attempts=1, poll_interval=0.2)
    async def billing(event: Event) -> None:
        seen.append(event.position)
        _ = event.payload, event.headers

    await app.category("orders", partitions=1)
    for record in (*POISON, *noise, {"key": b"z", "value": b"1"}):
        produce(f"{prefix}orders", **record)
    async with app.working():
        view = await until_lag(app, "billing")
        parked = (await app.consumers.parked("billing", limit=100)) if view.parked else []

    last = len(POISON) + len(noise) + 1
    assert seen[-1] == last
    assert len(parked) == view.parked > 20
    assert set(seen) | {each.position for each in parked} == set(range(1, last + 1))


async def test_after_the_store_is_restored_from_a_backup_each_event_has_one_effect_again(
    app: App, tmp_path: Path, events: str
):
    await app.category("orders", partitions=1)
    for number in range(5):
        await app.append("orders", stream="a", name="placed", payload=number)
    handled = a_consumer(app)
    async with app.working():
        await until(lambda: len(handled) == 5)
        await until_lag(app, "billing")
    with sqlite3.connect(tmp_path / "jobs.db") as source, sqlite3.connect(tmp_path / "restored.db") as backup:
        source.backup(backup)
    for number in range(5, 10):
        await app.append("orders", stream="a", name="placed", payload=number)
    async with app.working():
        await until(lambda: len(handled) == 10)
        await until_lag(app, "billing")

    restored = App(f"sqlite:///{tmp_path}/restored.db?synchronous=normal", events=events)
    again = a_consumer(restored)
    async with restored.working():
        await until(lambda: len(again) == 5)
        await until_lag(restored, "billing")
    await restored.close()

    assert [event.payload for event in again] == [5, 6, 7, 8, 9]
    with sqlite3.connect(tmp_path / "restored.db") as connection:
        effects = [row[0] for row in connection.execute("select event_id from effect order by rowid")]
    assert effects == [event.id for event in handled]


async def test_a_slow_share_stops_no_other_and_is_not_read_further_than_its_bound(
    app: App, servers: str, prefix: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(buffers, "MOST_RECORDS", 100)
    await app.category("orders", partitions=2)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(1500):
        producer.produce(f"{prefix}orders", str(number).encode(), b"a", partition=0)
        producer.produce(f"{prefix}orders", str(number).encode(), b"a", partition=1)
    assert producer.flush(30) == 0
    may_go_on = asyncio.Event()
    quick: list[Any] = []
    slow: list[Any] = []

    @app.consumer("billing", category="orders", batch=50, poll_interval=0.2)
    async def billing(batch: list[Event], ctx: EventContext) -> None:
        if batch[0].partition_id == 0:
            await may_go_on.wait()
        (quick if batch[0].partition_id else slow).extend(event.payload for event in batch)

    async with app.working():
        await until(lambda: len(quick) == 1500)
        streams: Any = (await app.opened()).streams
        held = [
            len(buffer._events)
            for reader in streams.readers.values()
            for buffer in reader._buffers.values()
            if buffer.partition_id == 0
        ]
        assert slow == []
        may_go_on.set()
        await until(lambda: len(slow) == 1500)

    assert held
    assert max(held) <= 100 + AT_ONCE + 1  # what one poll of the client may bring
    assert slow == quick == list(range(1500))


async def test_a_topic_that_was_never_made_is_waited_for_and_hinders_no_other(
    app: App, client: Any, prefix: str, produce: Callable[..., None]
):
    await app.append("sales", stream="a", name="placed", payload=1)
    with pytest.raises(CategoryNotFound):
        await app.read("orders")
    handled = a_consumer(app)
    sold: list[Any] = []

    @app.consumer("selling", category="sales", poll_interval=0.2)
    async def selling(event: Event) -> None:
        sold.append(event.payload)

    async with app.working():
        await until(lambda: sold == [1])
        assert [view.shares for view in await app.consumers.list() if view.name == "billing"] == [()]
        client.create_topics([kafka_admin.NewTopic(f"{prefix}orders", 1, 1)])[f"{prefix}orders"].result(20)
        produce(f"{prefix}orders", key=b"a", value=b"1")
        await until(lambda: len(handled) == 1)


async def test_a_topic_that_is_deleted_stops_its_shares_and_no_others(
    app: App, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
):
    for category in ("orders", "sales"):
        await app.append(category, stream="a", name="placed", payload=1)
    handled = a_consumer(app)
    sold: list[Any] = []

    @app.consumer("selling", category="sales", poll_interval=0.2)
    async def selling(event: Event) -> None:
        sold.append(event.payload)

    with caplog.at_level(logging.ERROR, "holdfast.streams"):
        async with app.working():
            await until(lambda: len(handled) == 1 and sold == [1])
            client.delete_topics([f"{prefix}orders"])[f"{prefix}orders"].result(20)
            await until(lambda: "was deleted" in caplog.text)
            await app.append("sales", stream="a", name="placed", payload=2)
            await until(lambda: sold == [1, 2])
            began = time.monotonic()
            with pytest.raises(CategoryNotFound, match="orders"):
                await app.append("orders", stream="a", name="placed", payload=2)

    assert time.monotonic() - began < 10  # seconds; not the time after which an append is given up
    assert "selling" not in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_positions_inside_what_compaction_has_removed_lead_to_the_next_record(
    app: App, client: Any, prefix: str, produce: Callable[..., None]
):
    topic = f"{prefix}orders"
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    config |= {"max.compaction.lag.ms": "100", "min.compaction.lag.ms": "0"}
    client.create_topics([kafka_admin.NewTopic(topic, 1, 1, config=config)])[topic].result(20)
    for number in range(30):
        produce(topic, key=b"a", value=str(number).encode())
    handled: list[Event] = []

    @app.consumer("billing", category="orders", poll_interval=0.2)
    async def billing(event: Event) -> None:
        handled.append(event)

    await app.category("orders")  # adopts the topic

    async def compacted() -> bool:
        produce(topic, key=b"b", value=b"-1")  # a new segment: the last one is never compacted
        left = await app.read("orders", partition_id=0, limit=50)
        return sum(event.stream == "a" for event in left) <= 2

    async with asyncio.timeout(60):
        while not await compacted():  # noqa: ASYNC110 - the broker has no event for it
            await asyncio.sleep(0.2)
    async with app.working():
        await until_lag(app, "billing")

    assert [event.payload for event in handled if event.stream == "a"] in ([29], [28, 29])
    assert (await view_of(app, "billing")).shares[0].position >= 30
