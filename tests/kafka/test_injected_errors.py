"""Errors of the protocol, injected by the mock cluster: each is retried, or becomes the right error of Holdfast."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.kafka.mock_cluster import FETCH, PRODUCE, MockCluster, mock_cluster

from holdfast import ConfigError, HoldfastError, OutcomeUnknown, PayloadError
from holdfast.backends.kafka import producing
from holdfast.backends.kafka.buffers import BATCHES_AT_ONCE, PartitionBuffer
from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import OutgoingRecord
from holdfast.backends.kafka.producing import KafkaAppender
from holdfast.backends.kafka.reading import KafkaReader
from holdfast.errors import EventsGone, StoreUnavailable

RECORD = OutgoingRecord("orders", "a", "1", {})
HOME = Home("orders", "orders", "id")


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        yield cluster


@asynccontextmanager
async def appender_of(cluster: MockCluster) -> AsyncGenerator[KafkaAppender]:
    location = KafkaLocation.parse(f"{cluster.url}?rd.delivery.timeout.ms=1500&rd.retry.backoff.ms=10")
    appender = KafkaAppender(location, ClientHealth(cluster.url))
    yield appender
    appender.close()


@pytest.mark.parametrize("error", [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_LEADER_FOR_PARTITION])
async def test_an_append_that_was_not_written_for_now_is_sent_again(cluster: MockCluster, error: int):
    async with appender_of(cluster) as appender:
        cluster.answer(PRODUCE, error)

        assert (await appender.append([RECORD]))[0].position == 1


async def test_an_append_that_is_too_large_says_so_and_the_next_one_works(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        cluster.answer(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
        with pytest.raises(PayloadError, match="append to orders"):
            await appender.append([RECORD])

        assert await appender.append([RECORD])


async def test_an_append_without_the_right_to_it_says_so(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        cluster.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ConfigError, match="append to orders: the broker denies it"):
            await appender.append([RECORD])


async def test_an_append_without_an_answer_in_time_has_an_unknown_outcome(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        cluster.answer(PRODUCE, *[KafkaError.REQUEST_TIMED_OUT] * 300)
        with pytest.raises(OutcomeUnknown, match="it may have been written") as raised:
            await appender.append([RECORD])

    assert not raised.value.is_repeatable


async def test_a_transaction_that_cannot_be_filled_is_ended_and_the_next_one_works(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        with pytest.raises(UnicodeEncodeError):
            await appender.append([RECORD, OutgoingRecord("orders", "a", "\ud800", {})])

        assert len(await appender.append([RECORD, RECORD])) == 2


async def test_a_producer_that_can_send_nothing_more_is_replaced(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        await appender.append([RECORD])
        cluster.answer(PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(OutcomeUnknown, match="it may have been written"):
            await appender.append([RECORD])

        assert await appender.append([RECORD])


async def test_an_append_of_one_is_sent_at_once(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        took: list[float] = []
        for _ in range(50):
            began = time.monotonic()
            await appender.append([RECORD])
            took.append(time.monotonic() - began)

    assert min(took) < 0.005  # seconds; so long the client waits by default for more records, each time


class FailingProducer(Producer):
    """A producer whose next poll raises an error, once."""

    failure: ClassVar[list[Exception]] = []

    def poll(self, *seconds: float) -> int:
        if self.failure:
            raise self.failure.pop()
        return super().poll(*seconds)


@pytest.mark.parametrize("failure", [KafkaException(KafkaError(KafkaError._FATAL)), SystemError("fatal")])
async def test_no_call_waits_for_a_producer_whose_thread_has_ended(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, failure: Exception
):
    monkeypatch.setattr(producing, "Producer", FailingProducer)
    async with appender_of(cluster) as appender:
        await appender.append([RECORD])
        cluster.answer(PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 300)
        one = asyncio.create_task(appender.append([RECORD]))
        await asyncio.sleep(0.1)
        FailingProducer.failure.append(failure)
        async with asyncio.timeout(10):
            with pytest.raises((StoreUnavailable, OutcomeUnknown), match="append to orders"):
                await one

        assert appender._single is None  # the next append makes another


async def test_calls_that_wait_when_the_app_is_closed_are_answered(cluster: MockCluster):
    async with appender_of(cluster) as appender:
        await appender.append([RECORD])
        cluster.answer(PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 300)  # repeated until the end
        is_over = threading.Event()
        appender._transactions.submit(is_over.wait)  # a transaction that takes its time
        one = asyncio.create_task(appender.append([RECORD]))
        many = asyncio.create_task(appender.append([RECORD, RECORD]))
        await asyncio.sleep(0)
        await asyncio.to_thread(appender.close)
        try:
            async with asyncio.timeout(5):
                with pytest.raises((StoreUnavailable, OutcomeUnknown), match="append to orders"):
                    await one
                with pytest.raises(StoreUnavailable, match="append 2 events to orders: the app was closed"):
                    await many
        finally:
            is_over.set()
        for records in ([RECORD], [RECORD, RECORD]):
            with pytest.raises(StoreUnavailable, match="the app was closed"):
                await appender.append(records)


@asynccontextmanager
async def buffer_of(cluster: MockCluster, after: int = 0) -> AsyncGenerator[PartitionBuffer]:
    async with appender_of(cluster) as appender:
        for _ in range(4):
            (place,) = await appender.append([RECORD])
        location = KafkaLocation.parse(cluster.url)
        reader = KafkaReader(location, ClientHealth(cluster.url), "billing", lambda: None)
        yield reader.begin(HOME, place.partition_id, generation=1, after=after)
        reader.stop()
        reader.join()


async def until_answered(buffer: PartitionBuffer) -> list[int]:
    for _ in range(40):
        events, passed = await buffer.take(0, 4 * BATCHES_AT_ONCE, 1000)  # waits a moment for 4
        if len(events) == 4 or passed:
            return [event.position for event in events]
    return []


@pytest.mark.parametrize("error", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE])
async def test_a_fetch_from_a_broker_that_does_not_lead_is_sent_again(cluster: MockCluster, error: int):
    cluster.answer(FETCH, error)
    async with buffer_of(cluster) as buffer:
        assert await until_answered(buffer) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError), (KafkaError.OFFSET_OUT_OF_RANGE, EventsGone)],
)
async def test_a_fetch_that_is_refused_fails_its_buffer_alone(
    cluster: MockCluster, error: int, kind: type[HoldfastError]
):
    cluster.answer(FETCH, *[error] * 5)
    async with buffer_of(cluster) as buffer:
        with pytest.raises(kind, match="orders"):
            await until_answered(buffer)

        assert not buffer.serves(1, 0)  # the next fetch begins again
