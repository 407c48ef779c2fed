"""Consumers of topics that other programs write, trim, compact, extend and delete."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer, TopicPartition, admin

from holdfast import App, ConfigError, Event, EventContext, PayloadError
from holdfast.cli.main import cli
from holdfast.errors import EventsGone
from holdfast.store.stream_values import ConsumerView, StartAt, Subscription

kafka_admin: Any = admin  # its annotations are partial
WITHIN = 30.0


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not is_true():  # noqa: ASYNC110 - what a handler in this loop has done
            await asyncio.sleep(0.02)


async def view_of(app: App, name: str) -> ConsumerView:
    (view,) = [view for view in await app.consumers.list() if view.name == name]
    return view


async def until_lag(app: App, name: str, lag: int = 0) -> ConsumerView:
    async with asyncio.timeout(WITHIN):
        while True:
            for view in await app.consumers.list():
                if view.name == name and view.shares and view.lag == lag:
                    return view
            await asyncio.sleep(0.05)


def a_consumer(app: App, **settings: Any) -> list[Event]:
    """Register a consumer of `orders` that writes an effect for each event; return the list of what it has handled."""
    handled: list[Event] = []

    @app.consumer("billing", category="orders", poll_interval=0.2, **settings)
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("create table if not exists effect (event_id text)")
            await connection.execute("insert into effect values (?)", (event.id,))
        handled.append(event)

    return handled


async def test_a_topic_of_others_is_consumed_as_it_is(app: App, client: Any, prefix: str, produce: Callable[..., None]):
    client.create_topics([kafka_admin.NewTopic(f"{prefix}orders", 1, 1)])[f"{prefix}orders"].result(20)
    produce(f"{prefix}orders", key=b"a", value=b'{"n": 1}', headers=[("source", b"shop")])
    produce(f"{prefix}orders", value=b"2")
    produce(f"{prefix}orders", key=b"\xff", value=None)
    handled = a_consumer(app)

    async with app.working():
        await until(lambda: len(handled) == 3)

    assert [(event.stream, event.payload) for event in handled] == [("a", {"n": 1}), ("~0", 2), ("~b64:_w==", None)]
    assert (handled[0].name, handled[0].headers) == ("record", {"source": "shop"})


async def test_the_lag_reaches_zero_past_markers_and_aborted_records(app: App, servers: str, prefix: str):
    await app.category("orders", partitions=1)
    await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in range(3)])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{prefix}other"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(f"{prefix}orders", b'"aborted"', b"a")
    producer.flush(20)
    producer.abort_transaction(20)
    handled = a_consumer(app)

    async with app.working():
        view = await until_lag(app, "billing")

    assert [event.payload for event in handled] == [0, 1, 2]
    assert view.shares[0].position > 4  # three events, two markers, one record that was aborted


async def test_the_age_of_the_oldest_unhandled_event_is_listed_for_each_consumer(
    app: App, client: Any, prefix: str, produce: Callable[..., None]
):
    topic = f"{prefix}orders"
    client.create_topics([kafka_admin.NewTopic(topic, 2, 1)])[topic].result(20)
    streams = (await app.opened()).streams
    now = time.time()
    for age in (7200, 3600):
        produce(topic, partition=0, key=b"a", value=b"1", timestamp=int((now - age) * 1000))
    await streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)
    await streams.consumers.subscribe("shipping", Subscription("orders"), 1)
    await streams.consumers.subscribe("audit", Subscription("orders"), StartAt.END)

    views = {view.name: view for view in await app.consumers.list()}

    ages = {
        name: [share.behind and round(share.behind.total_seconds() / 60) for share in view.shares]
        for name, view in views.items()
    }
    assert ages == {"billing": [120, None], "shipping": [60, None], "audit": [None, None]}


async def test_an_append_of_many_is_seen_whole_or_not_at_all(app: App, client: Any, prefix: str):
    topic = kafka_admin.NewTopic(f"{prefix}orders", 1, 1, config={"max.message.bytes": "1000"})
    client.create_topics([topic])[f"{prefix}orders"].result(20)
    too_large = "x" * 2000
    with pytest.raises(PayloadError, match=r"max\.message\.bytes"):
        await app.append_many(
            "orders",
            [{"stream": "a", "name": "placed", "payload": 1}, {"stream": "a", "name": "placed", "payload": too_large}],
        )
    with pytest.raises(PayloadError, match=r"max\.message\.bytes"):
        await app.append("orders", stream="a", name="placed", payload=too_large)

    await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in (2, 3)])

    assert [event.payload for event in await app.read("orders")] == [2, 3]


async def test_an_event_past_the_limit_of_the_client_is_refused_and_the_next_append_works(url: str, events: str):
    app = App(url, events=f"{events}?rd.message.max.bytes=2000")
    too_large = {"stream": "a", "name": "placed", "payload": "x" * 5000}  # the broker would take it
    try:
        for made in ([too_large], [{"stream": "a", "name": "placed"}, too_large]):
            with pytest.raises(PayloadError, match=r"message\.max\.bytes \(client\)"):
                await app.append_many("orders", made)

            await app.append_many("orders", [{"stream": "a", "name": "placed"}] * len(made))

        assert len(await app.read("orders")) == 3
    finally:
        await app.close()


def listed_by_command(folder: Path, events: str) -> str:
    settings = {"HOLDFAST_URL": f"sqlite:///{folder / 'jobs.db'}", "HOLDFAST_EVENTS_URL": events}
    result = CliRunner().invoke(cli, ["event", "read", "orders"], env=settings, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_what_is_no_json_is_parked_with_the_later_events_of_its_stream_and_retried(
    app: App, tmp_path: Path, events: str, prefix: str, produce: Callable[..., None]
):
    await app.category("orders", partitions=1)
    produce(f"{prefix}orders", key=b"a", value=b"\xff\x00")
    produce(f"{prefix}orders", key=b"a", value=b"1")
    produce(f"{prefix}orders", key=b"b", value=b"2")
    seen: list[tuple[str, Any]] = []
    accepts_bytes = False
    listed = await asyncio.to_thread(listed_by_command, tmp_path, events)
    assert [line.split("\t")[-1] for line in listed.splitlines()[1:]] == ['"~b64:/wA="', "1", "2"]

    @app.consumer("billing", category="orders", on_error="park", max_attempts=1, poll_interval=0.2)
    async def billing(event: Event) -> None:
        payload = event.content if accepts_bytes and event.position == 1 else event.payload
        seen.append((event.stream, payload))

    async with app.working():
        await until(lambda: ("b", 2) in seen)
        assert (await until_lag(app, "billing")).parked == 2
        accepts_bytes = True
        assert await app.consumers.retry_parked("billing") == 2
        await until(lambda: len(seen) == 3)
        await until_lag(app, "billing")

    assert seen == [("b", 2), ("a", b"\xff\x00"), ("a", 1)]
    assert (await view_of(app, "billing")).parked == 0


async def test_records_that_are_deleted_before_they_were_read_stop_the_share_until_it_is_reset(
    app: App, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
):
    await app.category("orders", partitions=1)
    await app.append("orders", stream="a", name="placed", payload=1)
    handled = a_consumer(app)
    async with app.working():
        await until(lambda: len(handled) == 1)
        await until_lag(app, "billing")
    for payload in (2, 3, 4):
        await app.append("orders", stream="a", name="placed", payload=payload)
    topic = f"{prefix}orders"
    next(iter(client.delete_records([TopicPartition(topic, 0, 3)]).values())).result(20)

    with caplog.at_level(logging.ERROR, "holdfast.streams"):
        async with app.working():
            await until(lambda: "removed events that the consumer had not read" in caplog.text)
            assert len(handled) == 1
    assert caplog.text.count("is stopped") == 1
    await app.consumers.pause("billing")
    await app.consumers.reset("billing", "beginning")
    await app.consumers.resume("billing")
    async with app.working():
        await until(lambda: len(handled) == 2)

    assert [event.payload for event in handled] == [1, 4]


async def test_a_position_past_the_end_stops_the_share(app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    await app.category("orders", partitions=1)
    for payload in (1, 2, 3):
        await app.append("orders", stream="a", name="placed", payload=payload)
    handled = a_consumer(app)
    async with app.working():
        await until(lambda: len(handled) == 3)
        await until_lag(app, "billing")
    with sqlite3.connect(tmp_path / "jobs.db") as connection:  # as after the loss of acknowledged records
        connection.execute("update holdfast_allocation set position_id = 500")

    with caplog.at_level(logging.ERROR, "holdfast.streams"):
        async with app.working():
            await until(lambda: "has no offset 500" in caplog.text)
            await app.append("orders", stream="a", name="placed", payload=4)

    assert len(handled) == 3
    assert caplog.text.count("is stopped") == 1


async def test_records_are_handled_in_the_order_of_their_offsets_whatever_their_times(
    app: App, client: Any, prefix: str, produce: Callable[..., None]
):
    topic = f"{prefix}orders"
    config = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**62)}
    client.create_topics([kafka_admin.NewTopic(topic, 1, 1, config=config)])[topic].result(20)
    years = (2100, 1970, 2026, 1999)
    for year in years:
        at = int(datetime(year, 2, 1, tzinfo=UTC).timestamp() * 1000)
        produce(topic, key=b"a", value=str(year).encode(), timestamp=at)
    handled = a_consumer(app)
    async with app.working():
        await until_lag(app, "billing")

    assert [event.payload for event in handled] == [event.recorded_at.year for event in handled] == list(years)
    found = await app.read("orders", partition_id=0, after=datetime(2050, 1, 1, tzinfo=UTC))
    assert [event.payload for event in found] == list(years)  # from the first record of that time or later


async def create_again(client: Any, topic: str, partitions: int = 1) -> None:
    client.delete_topics([topic])[topic].result(20)
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                client.create_topics([kafka_admin.NewTopic(topic, partitions, 1)])[topic].result(20)
            except KafkaException:  # the broker deletes it in the background
                await asyncio.sleep(0.1)
                continue
            return


async def test_a_topic_that_is_created_again_while_it_is_read_is_read_only_after_a_reset(
    app: App, client: Any, prefix: str, produce: Callable[..., None], caplog: pytest.LogCaptureFixture
):
    topic = f"{prefix}orders"
    handled: list[Any] = []

    @app.consumer("billing", category="orders", poll_interval=0.2)
    async def billing(event: Event) -> None:
        handled.append(event.payload)

    def produce_new(*numbers: int) -> None:
        for number in numbers:
            produce(topic, partition=0, key=b"a", value=str(number).encode())

    await app.category("orders", partitions=1)
    old = [f"old {number}" for number in range(5)]
    for payload in old:
        await app.append("orders", stream="a", name="placed", payload=payload)
    with caplog.at_level(logging.ERROR, "holdfast.streams"):
        async with app.working():
            await until(lambda: handled == old)
            await until_lag(app, "billing")
            await create_again(client, topic, partitions=2)
            produce_new(0, 1, 2)
            await until(lambda: "is stopped" in caplog.text)
            produce_new(*range(3, 10))  # past the old position, too
            await until(lambda: "deleted and created again" in caplog.text)
            assert handled == old

            await app.consumers.reset("billing", "beginning")
            await until(lambda: handled[5:] == list(range(10)))
            view = await until_lag(app, "billing")

    assert len(view.shares) == 2


async def test_a_topic_that_was_created_again_is_accepted_only_where_no_position_would_mean_other_records(
    app: App, client: Any, prefix: str
):
    await app.category("orders", partitions=2)
    consumers: Any = (await app.opened()).streams.consumers
    for name in ("billing", "shipping"):
        await consumers.subscribe(name, Subscription("orders"), StartAt.BEGINNING)
    await create_again(client, f"{prefix}orders")
    with pytest.raises(ConfigError, match="created again with 1 partitions, and category 'orders' has 2"):
        await app.consumers.reset("billing", "beginning")
    client.create_partitions([kafka_admin.NewPartitions(f"{prefix}orders", 2)])[f"{prefix}orders"].result(20)
    for number in range(5):
        await app.append("orders", stream=f"order-{number}", name="placed")
    with pytest.raises(ConfigError, match=r"Other consumers have positions among the former events: shipping\. Forget"):
        await app.consumers.reset("billing", "end")
    with pytest.raises(EventsGone, match="deleted and created again"):
        await app.read("orders")
    await app.consumers.pause("shipping")
    await app.consumers.forget("shipping")

    await app.consumers.reset("billing", datetime(2000, 1, 1, tzinfo=UTC))

    view = await view_of(app, "billing")
    assert ([share.position for share in view.shares], view.lag) == ([0, 0], 5)
    assert len(await app.read("orders")) == 5


async def test_partitions_that_are_added_are_consumed_from_their_beginning(
    app: App, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
):
    topic = f"{prefix}orders"
    await app.category("orders", partitions=1)
    await app.append("orders", stream="a", name="placed", payload=0)
    handled = a_consumer(app)
    async with app.working():
        await until(lambda: len(handled) == 1)
        client.create_partitions([kafka_admin.NewPartitions(topic, 4)])[topic].result(20)
        async with asyncio.timeout(WITHIN):
            while len((await view_of(app, "billing")).shares) < 4:  # noqa: ASYNC110 - another process may be the leader
                await asyncio.sleep(0.1)
        for number in range(1, 20):
            await app.append("orders", stream=f"order-{number}", name="placed", payload=number)
        await until(lambda: len(handled) == 20)
        view = await until_lag(app, "billing")

    assert sorted(event.payload for event in handled) == list(range(20))
    assert len(view.shares) == 4
    assert "has 4 partitions instead of 1; events of one stream may now be in two of them" in caplog.text


@pytest.mark.parametrize("is_adopted", [True, False])
async def test_a_process_that_knew_fewer_partitions_finds_those_that_were_added(
    app: App, url: str, events: str, client: Any, prefix: str, is_adopted: bool
):
    await app.category("orders", partitions=1)
    client.create_partitions([kafka_admin.NewPartitions(f"{prefix}orders", 4)])[f"{prefix}orders"].result(20)
    if is_adopted:
        other = App(url, events=events)
        assert (await other.category("orders", partitions=4)).partitions == 4
        await other.close()

    assert (await app.category("orders", partitions=4)).partitions == 4
    with pytest.raises(ConfigError, match=r"has 4 partitions .*, not 5"):
        await app.category("orders", partitions=5)


async def test_trim_deletes_only_what_every_consumer_has_passed(app: App):
    await app.category("orders", partitions=1)
    for number in range(6):
        await app.append("orders", stream="a", name="placed", payload=number)
    handled = a_consumer(app)
    async with app.working():
        await until(lambda: len(handled) == 6)
        await until_lag(app, "billing")
    await app.append("orders", stream="a", name="placed", payload=6)

    assert await app.trim("orders", 3600) == 0
    assert await app.trim("orders", 0) == 6
    assert [event.payload for event in await app.read("orders")] == [6]


async def test_trim_deletes_nothing_where_the_share_of_a_reader_does_not_exist_yet(app: App, client: Any, prefix: str):
    streams = (await app.opened()).streams
    await app.category("orders", partitions=1)
    await streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)
    await streams.consumers.subscribe("audit", Subscription(), StartAt.BEGINNING)
    client.create_partitions([kafka_admin.NewPartitions(f"{prefix}orders", 2)])[f"{prefix}orders"].result(20)
    for number in range(8):  # no node runs, so no leader adds the shares of the partition and of the category
        await app.append("orders", stream=f"order-{number}", name="placed")
        await app.append("sales", stream=f"order-{number}", name="made")

    assert [await app.trim(category, 0) for category in ("orders", "sales")] == [0, 0]
    assert {event.partition_id for event in await app.read("orders")} == {0, 1}
