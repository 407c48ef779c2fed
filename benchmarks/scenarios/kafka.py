"""Events in Kafka, next to PostgreSQL: compared with a loop by hand, and with our own streams in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from types import ModuleType

from benchmarks.bench import Bench, check
from benchmarks.record import Record
from benchmarks.scenarios.streams import CATEGORY, PARTITIONS, STREAMS, consume_ours
from holdfast import App, Event

_AT_ONCE = 2000  # events of an append


def _count(bench: Bench) -> int:
    return max(_AT_ONCE, bench.sizes.jobs // 5 // _AT_ONCE * _AT_ONCE)


def _numbered(count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(f"stream-{n % STREAMS}", n) for n in range(first, first + count)]


def _raw() -> ModuleType:
    from benchmarks.raw import kafka  # only where there is a client

    return kafka


def check_topic(found: list[str], count: int) -> None:
    """Fail the run unless the topic has each of so many records once."""
    check((len(found), len(set(found))), (count, count), "records in the topic, and different ones")


# --- produce ----------------------------------------------------------------------------------------------------------


def _produce_ours(bench: Bench, count: int, *, in_kafka: bool) -> float:
    raw = _raw()
    with bench.store.fresh() as place, raw.topics(bench.events) as topics:

        async def run() -> float:
            async with App(place.url, events=topics.url if in_kafka else None) as app:
                await app.category(CATEGORY, partitions=PARTITIONS)
                await app.append_many(CATEGORY, _made(PARTITIONS))  # connects
                began = time.perf_counter()
                for first in range(0, count, _AT_ONCE):
                    await app.append_many(CATEGORY, _made(_AT_ONCE, first))
                seconds = time.perf_counter() - began
                if not in_kafka:
                    (view,) = await app.categories()
                    check(view.appended, count + PARTITIONS, "appended events")
                return seconds

        seconds = asyncio.run(run())
        if in_kafka:
            check_topic(raw.ids(topics, topics.prefix + CATEGORY, PARTITIONS), count + PARTITIONS)
    return count / seconds


def _made(count: int, first: int = 0) -> list[dict[str, object]]:
    return [
        {"stream": stream, "name": "changed", "payload": {"n": number}} for stream, number in _numbered(count, first)
    ]


def _produce_raw(bench: Bench, count: int, *, in_transactions: bool) -> float:
    raw = _raw()
    with raw.topics(bench.events) as topics:
        topic = raw.create(topics, CATEGORY, PARTITIONS)
        writer = raw.Batches(topics, topic, in_transactions=in_transactions)
        writer.write(_numbered(PARTITIONS))  # connects
        began = time.perf_counter()
        for first in range(0, count, _AT_ONCE):
            writer.write(_numbered(_AT_ONCE, first))
        seconds = time.perf_counter() - began
        check_topic(raw.ids(topics, topic, PARTITIONS), count + PARTITIONS)
    return count / seconds


def produce(bench: Bench) -> list[Record]:
    """Appends of two thousand events, each acknowledged before the next; all or none, so a transaction of Kafka."""
    if bench.events is None or bench.store.name != "postgresql":
        return []
    count = _count(bench)
    ours, same, weaker, in_sql = bench.medians(
        lambda: _produce_ours(bench, count, in_kafka=True),
        lambda: _produce_raw(bench, count, in_transactions=True),
        lambda: _produce_raw(bench, count, in_transactions=False),
        lambda: _produce_ours(bench, count, in_kafka=False),
    )
    return _records(bench, "kafka.produce", ours, {"": same, ".idempotent": weaker, ".sql": in_sql})


# --- consume ----------------------------------------------------------------------------------------------------------


def _consume_in_kafka(bench: Bench, count: int, batch: int) -> float:
    raw = _raw()
    with raw.topics(bench.events) as topics:
        return consume_ours(bench, count, batch=batch, number=_number, events_url=topics.url)


def _number(event: Event) -> int:
    return int(event.payload["n"])


def _consume_raw(bench: Bench, count: int, batch: int) -> float:
    from benchmarks.raw import streams_postgres

    raw = _raw()
    with bench.store.fresh() as place, raw.topics(bench.events) as topics:

        async def install() -> None:
            async with App(place.url):
                pass

        asyncio.run(install())  # makes the schema in which the raw tables go
        topic = raw.create(topics, CATEGORY, PARTITIONS)
        writer = raw.Batches(topics, topic, in_transactions=True)
        for first in range(0, count, _AT_ONCE):
            writer.write(_numbered(_AT_ONCE, first))
        raw.prepare(place.raw, PARTITIONS)
        seconds: float = raw.consume(topics, topic, place.raw, partitions=PARTITIONS, batch=batch, count=count)
        check(streams_postgres.effects(place.raw), count, "effects")
    return count / seconds


def _consume(bench: Bench, batch: int) -> list[Record]:
    if bench.events is None or bench.store.name != "postgresql":
        return []
    count = _count(bench)
    ours, by_hand, in_sql = bench.medians(
        lambda: _consume_in_kafka(bench, count, batch),
        lambda: _consume_raw(bench, count, batch),
        lambda: consume_ours(bench, count, batch=batch, number=_number),
    )
    return _records(bench, f"kafka.consume.{batch}", ours, {"": by_hand, ".sql": in_sql})


def consume_100(bench: Bench) -> list[Record]:
    """Batches of a hundred, effects and position in one transaction, by one node."""
    return _consume(bench, 100)


def consume_500(bench: Bench) -> list[Record]:
    """Batches of five hundred."""
    return _consume(bench, 500)


def _records(bench: Bench, name: str, ours: float, compared: dict[str, float]) -> list[Record]:
    return [bench.record(name + what, ours, unit="events/s", raw=raw) for what, raw in compared.items()]
