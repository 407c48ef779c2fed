"""Streams: append in batches, consume with effect and position in one transaction, and what depth costs."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from statistics import median
from types import ModuleType
from typing import Any

from benchmarks.bench import Bench, check
from benchmarks.raw import streams_sqlite
from benchmarks.record import Record
from benchmarks.stores import Place
from holdfast import App, Event, EventContext, Timing
from holdfast.model.allocation import Grant, GrantTo, NodeKey
from holdfast.model.event import NewEvent, partition_of
from holdfast.model.ids import new_ids
from holdfast.store.stream_values import Member, NewNode

PARTITIONS = 8
STREAMS = 200
_BATCH = 100
CATEGORY = "bench"
_CHUNK = 5000


def _effect(bench: Bench, place: Place) -> tuple[str, str]:
    """Return the statements that make the table of effects and add to it, as a handler's connection knows it."""
    if bench.store.name == "sqlite":
        return "create table effect (id text not null, n integer not null)", "insert into effect values (?, ?)"
    if bench.store.name == "mysql":
        make = "create table effect (id varchar(36) character set ascii not null, n bigint not null)"
        return make, "insert into effect values (%s, %s)"
    name = f"{_raw(bench).schema_of(place.raw)}.effect"
    make = f"create table {name} (id uuid not null, n bigint not null)"
    return make, f"insert into {name} select * from unnest(%s::uuid[], %s::bigint[])"  # noqa: S608 - our own words


def _raw(bench: Bench) -> ModuleType:
    if bench.store.name == "sqlite":
        return streams_sqlite
    if bench.store.name == "mysql":
        from benchmarks.raw import streams_mysql

        return streams_mysql
    from benchmarks.raw import streams_postgres

    return streams_postgres


def _streams_by_partition() -> list[list[str]]:
    parts: dict[int, list[str]] = defaultdict(list)
    for number in range(STREAMS):
        parts[partition_of(f"stream-{number}", PARTITIONS)].append(f"stream-{number}")
    return [parts[number] for number in range(PARTITIONS)]


def _batches(count: int) -> list[tuple[int, list[tuple[str, str]]]]:
    """Return (partition, events) for each batch; the events of a batch belong to some streams of one partition."""
    parts = _streams_by_partition()
    batches: list[tuple[int, list[tuple[str, str]]]] = []
    for number in range(count // _BATCH):
        part = number % PARTITIONS
        streams = parts[part]
        batches.append((part, [(streams[n % len(streams)], f'{{"n":{n}}}') for n in range(_BATCH)]))
    return batches


# --- append -----------------------------------------------------------------------------------------------------------


def _append_ours(bench: Bench, count: int) -> float:
    batches = [
        [{"stream": stream, "name": "changed", "payload": {"n": n}} for n, (stream, _) in enumerate(events)]
        for _, events in _batches(count)
    ]
    with bench.store.fresh() as place:

        async def run() -> float:
            async with App(place.url) as app:
                await app.category(CATEGORY, partitions=PARTITIONS)
                began = time.perf_counter()
                for events in batches:
                    await app.append_many(CATEGORY, events)
                seconds = time.perf_counter() - began
                (view,) = await app.categories()
                check(view.appended, count, "appended events")
                return seconds

        return count / asyncio.run(run())


def _append_raw(bench: Bench, count: int) -> float:
    raw = _raw(bench)
    batches = _batches(count)
    with bench.store.fresh() as place:
        _prepare_raw(bench, place, raw)
        with closing(raw.connect(place.raw)) as connection:
            began = time.perf_counter()
            for part, events in batches:
                raw.append(connection, part, events)
            seconds = time.perf_counter() - began
    return count / seconds


def _prepare_raw(bench: Bench, place: Place, raw: ModuleType) -> None:
    if bench.store.name == "postgresql":
        _install(place)  # makes the schema in which the raw tables go
    raw.create(place.raw, PARTITIONS)


def _install(place: Place) -> None:
    async def run() -> None:
        async with App(place.url):
            pass

    asyncio.run(run())


def append(bench: Bench) -> list[Record]:
    """Batches of a hundred, each in a transaction of its own, to one of eight partitions."""
    count = max(_BATCH, bench.sizes.jobs // 5 // _BATCH * _BATCH)
    return [
        bench.compare(
            "append.batch", lambda: _append_ours(bench, count), lambda: _append_raw(bench, count), unit="events/s"
        )
    ]


# --- consume ----------------------------------------------------------------------------------------------------------


async def _fill(app: App, count: int) -> None:
    await app.category(CATEGORY, partitions=PARTITIONS)
    numbers = range(count)
    for first in range(0, count, _CHUNK):
        events = [
            NewEvent(event_id, CATEGORY, f"stream-{n % STREAMS}", "changed", f'{{"n":{n}}}')
            for event_id, n in zip(new_ids(len(numbers[first : first + _CHUNK])), numbers[first:], strict=False)
        ]
        await app.backend.streams.events.append(events)


def _version(event: Event) -> int:
    return event.version


def consume_ours(
    bench: Bench,
    count: int,
    *,
    batch: int = _BATCH,
    number: Callable[[Event], int] = _version,
    events_url: str | None = None,
) -> float:
    """Return the events a second from the first call of a handler to the last commit, by one node.

    `number` is written with the id of an event.
    """
    with bench.store.fresh() as place:
        make, insert = _effect(bench, place)

        async def run() -> float:
            app = App(place.url, events=events_url)
            seen, began = 0, 0.0
            all_seen = asyncio.Event()

            @app.consumer("bench", category=CATEGORY, batch=batch)
            async def handle(events: list[Event], ctx: EventContext) -> None:
                nonlocal seen, began
                began = began or time.perf_counter()
                async with ctx.transaction() as connection:
                    written = [(event.id, number(event)) for event in events]
                    if bench.store.name == "sqlite":
                        await connection.executemany(insert, written)
                    elif bench.store.name == "mysql":
                        async with connection.cursor() as cursor:
                            await cursor.executemany(insert, written)
                    else:  # in one statement, as by hand: the async driver's executemany takes six times as long
                        await connection.execute(insert, tuple(map(list, zip(*written, strict=True))))
                seen += len(events)
                if seen >= count:
                    all_seen.set()

            async with app:
                await _fill(app, count)
                await _execute(bench, place, make)
                node = app.node(timing=Timing().scaled(0.2))
                task = asyncio.create_task(node.run())
                await all_seen.wait()
                seconds = time.perf_counter() - began
                node.stop()
                await task
            check(seen, count, "handled events")
            return count / seconds

        rate = asyncio.run(run())
        check(_raw(bench).effects(place.raw, "effect"), count, "effects")
    return rate


async def _execute(bench: Bench, place: Place, statement: str) -> None:
    def execute() -> None:
        with closing(_raw(bench).connect(place.raw)) as connection:
            connection.execute(statement)
            connection.commit()

    await asyncio.to_thread(execute)  # the connection of a loop by hand may have an event loop of its own


def _consume_raw(bench: Bench, count: int) -> float:
    raw = _raw(bench)
    with bench.store.fresh() as place:
        _prepare_raw(bench, place, raw)
        with closing(raw.connect(place.raw)) as connection:
            for part, events in _batches(count):
                raw.append(connection, part, events)
            began = time.perf_counter()
            done = raw.consume(connection, PARTITIONS, _BATCH)
            seconds = time.perf_counter() - began
        check((done, raw.effects(place.raw)), (count, count), "events and effects")
    return count / seconds


def consume(bench: Bench) -> list[Record]:
    """Batches of a hundred, effect and position in one transaction, by one node."""
    count = max(_BATCH, bench.sizes.jobs // 5 // _BATCH * _BATCH)
    return [
        bench.compare(
            "consume.batch", lambda: consume_ours(bench, count), lambda: _consume_raw(bench, count), unit="events/s"
        )
    ]


# --- depth ------------------------------------------------------------------------------------------------------------


class _Side:
    """A store with so many events, and a consumer at its beginning."""

    def __init__(self, place: Place) -> None:
        self.app = App(place.url)
        self.app.consumer("bench", category=CATEGORY)(_nothing)

    async def fill(self, count: int) -> None:
        await _fill(self.app, count)
        (consumer,) = self.app.subscribed
        streams = self.app.backend.streams
        await streams.consumers.subscribe(consumer.name, consumer.subscription, consumer.start)
        node = NodeKey("bench", "1")
        await streams.allocations.join(NewNode(node, "here", 1, (Member("bench"),), Timing(ttl=timedelta(hours=1))))
        leadership = await streams.allocations.lead(node, timedelta(hours=1))
        survey = await streams.allocations.survey()
        share = survey.shares[0]
        assert leadership is not None
        await streams.allocations.move_shares(
            leadership, [GrantTo(share.share, share.generation, node)], grace=timedelta(seconds=1)
        )
        self.grant = Grant(share.share, share.generation + 1)
        self.middle = max(0, count // PARTITIONS // 2)

    async def lag(self) -> float:
        began = time.perf_counter()
        await self.app.consumers.list()
        return time.perf_counter() - began

    async def fetch(self) -> float:
        began = time.perf_counter()
        fetched = await self.app.backend.streams.consumers.fetch(self.grant, after=self.middle, limit=_BATCH)
        seconds = time.perf_counter() - began
        return seconds / max(1, len(fetched.events))


async def _nothing(event: Event) -> None:
    """Do nothing."""


async def _measure(bench: Bench, near: Place, far: Place) -> dict[str, tuple[float, float]]:
    few, many = _Side(near), _Side(far)
    figures: dict[str, tuple[list[float], list[float]]] = {"lag": ([], []), "fetch": ([], [])}
    async with AsyncExitStack() as stack:
        for side, count in ((few, bench.sizes.jobs // 5), (many, 20 * bench.sizes.jobs)):
            await stack.enter_async_context(side.app)
            await side.fill(count)
        for _ in range(bench.sizes.claims):
            for name, (ours, base) in figures.items():
                base.append(await _timed(few, name))
                ours.append(await _timed(many, name))
    return {name: (median(ours), median(base)) for name, (ours, base) in figures.items()}


async def _timed(side: Any, name: str) -> float:
    return float(await getattr(side, name)())


def depth(bench: Bench) -> list[Record]:
    """The lag of a consumer, and a fetch per event; `raw` is our own with a hundredth of the events."""
    with bench.store.fresh() as near, bench.store.fresh() as far:
        medians = asyncio.run(_measure(bench, near, far))
    return [
        bench.record(f"streams.depth.{name}", 1000 * ours, unit="ms", raw=1000 * base)
        for name, (ours, base) in medians.items()
    ]
