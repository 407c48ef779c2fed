"""Faults of the brokers themselves: passwords, rights, lost answers, missing replicas, a change of leaders."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import KafkaError, admin
from tests.kafka.test_consuming import until

from holdfast import App, ConfigError, Event, OutcomeUnknown, StoreUnavailable
from holdfast.backends.kafka import transactions
from holdfast.testing.kafka_server import KafkaServer, kafka_server
from holdfast.testing.throw_away_server import free_port
from holdfast.torture.proxy import Proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
kafka_admin: Any = admin  # its annotations are partial
IMPATIENT = "rd.delivery.timeout.ms=4000&rd.socket.timeout.ms=2000"


@asynccontextmanager
async def app_with(events: str) -> AsyncGenerator[App]:
    with tempfile.TemporaryDirectory() as folder:
        app = App(f"sqlite:///{folder}/jobs.db?synchronous=normal", events=events)
        yield app
        await app.close()


def admin_of(url: str) -> Any:
    parts = urlsplit(url)
    settings: dict[str, Any] = {"bootstrap.servers": f"{parts.hostname}:{parts.port}"}
    if parts.username:
        login = {"sasl.username": parts.username, "sasl.password": parts.password, "sasl.mechanism": "PLAIN"}
        settings |= {**login, "security.protocol": "sasl_plaintext"}
    return kafka_admin.AdminClient(settings)


# --- who may do what --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaServer]:
    """A broker with passwords and rights."""
    with kafka_server(users={"admin": "secret", "reader": "word"}) as server:
        yield server


def as_user(server: KafkaServer, login: str) -> str:
    return f"kafka://{login}@127.0.0.1:{server.port}/"


def allow(server: KafkaServer, topic: str, *rights: str) -> None:
    kinds = kafka_admin.ResourceType.TOPIC, topic, kafka_admin.ResourcePatternType.LITERAL, "User:reader", "*"
    rules = [
        kafka_admin.AclBinding(*kinds, kafka_admin.AclOperation[right], kafka_admin.AclPermissionType.ALLOW)
        for right in rights
    ]
    client = admin_of(server.url)
    for made in client.create_acls(rules).values():
        made.result(20)


async def start_a_node(app: App) -> None:
    @app.consumer("billing", category="orders")
    async def billing(event: Event) -> None: ...

    await app.node().run()


@pytest.mark.parametrize("call", [lambda app: app.append("orders", stream="a", name="placed"), start_a_node])
async def test_a_wrong_password_is_named_as_the_cause(guarded: KafkaServer, call: Callable[[App], Awaitable[object]]):
    async with app_with(as_user(guarded, "reader:wrong")) as app:
        await app.opened()
        began = time.monotonic()
        with pytest.raises(ConfigError, match="check user, password and rights"):
            await call(app)

    assert time.monotonic() - began <= 3


async def test_a_share_without_the_right_to_read_stops_alone_until_the_right_is_granted(
    guarded: KafkaServer, caplog: pytest.LogCaptureFixture
):
    async with app_with(guarded.url) as admins:
        for category in ("orders", "sales"):
            await admins.category(category, partitions=1)
            await admins.append(category, stream="a", name="placed", payload=1)
    allow(guarded, "orders", "DESCRIBE")
    allow(guarded, "sales", "DESCRIBE", "READ")
    handled: dict[str, list[Any]] = {"orders": [], "sales": []}
    async with app_with(as_user(guarded, "reader:word")) as app:
        with pytest.raises(ConfigError, match="check user, password and rights"):
            await app.append("orders", stream="a", name="placed")
        for category in handled:

            @app.consumer(f"of-{category}", category=category, poll_interval=0.2)
            async def handler(event: Event) -> None:
                handled[event.category].append(event.payload)

        with caplog.at_level(logging.ERROR, "holdfast.streams"):
            async with app.working():
                await until(lambda: handled["sales"] == [1] and "is stopped" in caplog.text)
                assert handled["orders"] == []
                allow(guarded, "orders", "READ")
                await until(lambda: handled["orders"] == [1])

    assert "of-sales" not in caplog.text


# --- lost answers -----------------------------------------------------------------------------------------------------


class PlainWire:
    """Bytes that are passed on as they come: for the proxy."""

    commit = writes = ""

    def __init__(self, port: int) -> None:
        self._port = port

    def place(self, url: str) -> tuple[str, int]:
        del url
        return "127.0.0.1", self._port

    def led_to(self, url: str, port: int) -> str:
        del url
        return f"kafka://127.0.0.1:{port}/?{IMPATIENT}"

    def requests(self) -> PlainWire:
        return self

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        yield data, None

    def is_answered(self, replies: bytes) -> bool:
        return not replies


class CommitWire(PlainWire):
    """Finds the request that ends a transaction of Kafka, which the client sends alone."""

    END = 26  # of the protocol
    commit = "end"
    lose: Callable[[], object]
    """Called when the answer is there, which is not passed on."""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        yield data, "end" if int.from_bytes(data[4:6]) == self.END else None

    def is_answered(self, replies: bytes) -> bool:
        self.lose()
        return bool(replies)


@contextmanager
def behind_a_proxy(wire: type[PlainWire] = PlainWire) -> Iterator[Proxy]:
    port = free_port()
    proxy = Proxy("", wire(port))
    advertised = {"advertised.listeners": f"PLAINTEXT://{urlsplit(proxy.url).netloc}"}
    try:
        with kafka_server(port=port, settings=advertised):
            yield proxy
    finally:
        proxy.close()


async def test_an_append_whose_answer_is_lost_has_an_unknown_outcome_and_a_repeat_has_the_same_id():
    third = "00000000-0000-0000-0000-000000000003"
    with behind_a_proxy() as proxy:
        async with app_with(proxy.url) as app:
            await app.category("orders", partitions=1)
            first = await app.append("orders", stream="a", name="placed", payload=1)
            await asyncio.to_thread(proxy.half)  # what was sent arrives, and no answer does, until the next connection
            second = await app.append("orders", stream="a", name="placed", payload=2)
            await asyncio.to_thread(proxy.half)
            appending = asyncio.create_task(app.append("orders", stream="a", name="placed", payload=3, event_id=third))
            await asyncio.sleep(1)  # it is written by now; no answer says so
            await asyncio.to_thread(proxy.refuse)
            streams: Any = app.backend.streams
            streams.topics._health.on_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))  # of any client
            with pytest.raises(OutcomeUnknown, match="refuse the login now: wrong password") as raised:
                await appending
            proxy.heal()
            await app.append("orders", stream="a", name="placed", payload=3, event_id=third)
            found = (await app.read("orders")).events

    assert not raised.value.is_repeatable
    assert [event.id for event in found[:2]] == [first.id, second.id]  # repeated by the client, and written once
    assert {(event.id, event.payload) for event in found[2:]} == {(third, 3)}
    assert len(found) in {3, 4}


async def test_a_transaction_whose_commit_is_not_answered_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "_PAST_DELIVERY", 4.0)  # seconds; it tries again so long
    with behind_a_proxy(CommitWire) as proxy:
        async with app_with(proxy.url) as app:
            await app.category("orders", partitions=1)
            await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in (0, 1)])
            wire: Any = proxy.wire
            wire.lose = partial(setattr, proxy, "_new", "refuse")  # else the client asks again
            proxy.arm("after")
            with pytest.raises(
                OutcomeUnknown, match="append 2 events to orders: the commit was not answered"
            ) as raised:
                await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in (2, 3)])
            assert proxy.cuts == 1
            proxy.heal()
            await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in (4, 5)])
            found = (await app.read("orders")).events

    assert not raised.value.is_repeatable
    assert [event.payload for event in found] == list(range(6))  # it was committed


# --- two brokers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_brokers() -> Iterator[tuple[KafkaServer, KafkaServer]]:
    with kafka_server() as first, kafka_server(node_id=2, leader=first) as second:
        yield first, second


def create(first: KafkaServer, second: KafkaServer, topic: str, **config: str) -> None:
    made = kafka_admin.NewTopic(topic, 4, 2, config={name.replace("_", "."): text for name, text in config.items()})
    client = kafka_admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{first.port},127.0.0.1:{second.port}"})
    client.create_topics([made])[topic].result(30)


async def test_a_broker_that_is_lost_takes_no_acknowledged_event_with_it(two_brokers: tuple[KafkaServer, KafkaServer]):
    first, second = two_brokers
    await asyncio.to_thread(create, first, second, "orders")
    await asyncio.to_thread(create, first, second, "safe", min_insync_replicas="2")
    url = f"kafka://127.0.0.1:{first.port},127.0.0.1:{second.port}/?rd.delivery.timeout.ms=30000"
    handled: list[tuple[str, int]] = []
    async with app_with(url) as app:
        acknowledged = [(await app.append("safe", stream="a", name="placed")).id for _ in range(50)]

        @app.consumer("billing", category="orders", batch=50, poll_interval=0.2)
        async def billing(events: list[Event]) -> None:
            handled.extend((event.stream, event.payload) for event in events)

        async with app.working():
            for number in range(60):
                if number == 20:
                    await asyncio.to_thread(second.kill)  # it leads some of the partitions
                for stream in "abcdef":
                    await app.append("orders", stream=stream, name="placed", payload=number)
            await until(lambda: len(handled) == 360)

    for stream in "abcdef":
        assert [number for found, number in handled if found == stream] == list(range(60))
    async with app_with(f"kafka://127.0.0.1:{first.port}/?{IMPATIENT}") as app:
        with pytest.raises((OutcomeUnknown, StoreUnavailable)):  # one replica is left, and two are demanded
            await app.append("safe", stream="a", name="placed")
        with pytest.raises(StoreUnavailable):  # all or none: not the commit, but a record was refused
            await app.append_many("safe", [{"stream": "a", "name": "placed"}] * 2)
        await asyncio.to_thread(second.start)
        async with asyncio.timeout(60):
            while True:
                try:
                    await app.append("safe", stream="a", name="placed", payload="last")
                except (OutcomeUnknown, StoreUnavailable):
                    continue
                break
        found = list(await app.read("safe", limit=100))

    assert [event.id for event in found[:50]] == acknowledged
    assert found[-1].payload == "last"
