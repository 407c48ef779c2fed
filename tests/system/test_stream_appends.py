"""Writers in many processes, and a reader who follows: no hole, no position that appears below what was read."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict

import psycopg
import pytest

from holdfast import App, StoreUnavailable

PARTITIONS = 2


@pytest.mark.parametrize(
    ("writers", "batches"), [(4, 10), pytest.param(8, 50, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_reader_who_follows_many_writers_sees_every_event_once_in_order_and_without_a_hole(
    store, workers, writers, batches
):
    app = App(store.url)
    try:
        app.sync.category("races", partitions=PARTITIONS)
        programs = [
            workers.program("tests.system.apps.append_program", str(number), str(batches)) for number in range(writers)
        ]
        read: dict[int, list[tuple[str, int]]] = defaultdict(list)
        while any(program.process.poll() is None for program in programs):
            follow(app, read)
        appended = 0
        for program in programs:
            assert program.end() == 0, program.text
            appended += int(re.findall(r"^appended (\d+)$", program.text, re.MULTILINE)[0])
        follow(app, read)
        assert sum(map(len, read.values())) == appended > 0
        assert [len(read[part]) for part in range(PARTITIONS)] == list(app.sync.categories()[0].heads)
        versions: dict[str, list[int]] = defaultdict(list)
        for part in read.values():
            for stream, version in part:
                versions[stream].append(version)
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in versions.values())
    finally:
        app.sync.close()
        app.portal.close()


def follow(app, read):
    """Read on in each partition; what is new must join on without a gap."""
    for part in range(PARTITIONS):
        known = len(read[part])
        page = app.sync.read("races", partition_id=part, after=known, limit=1000)
        assert [event.position for event in page] == list(range(known + 1, known + 1 + len(page)))
        read[part] += [(event.stream, event.version) for event in page]


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_batches_that_lock_partitions_in_opposite_order_wait_or_are_broken_off_and_repeated(store):
    """Within one append the order is the store's. Two appends of one caller's transaction are the caller's to order."""
    app = App(store.url)
    await app.category("races", partitions=PARTITIONS)
    streams: dict[int, str] = {}
    for number in range(20):
        place = await app.append("races", stream=f"s{number}", name="changed")
        streams.setdefault(place.partition_id, f"s{number}")
    before = (await app.categories())[0].appended
    met = asyncio.Barrier(2)

    async def write(order: tuple[int, int], *, is_first_try: bool = True) -> int:
        async with await psycopg.AsyncConnection.connect(store.url) as connection:
            try:
                await app.append("races", stream=streams[order[0]], name="changed", using=connection)
                if is_first_try:
                    await met.wait()
                await app.append("races", stream=streams[order[1]], name="changed", using=connection)
            except (psycopg.errors.DeadlockDetected, StoreUnavailable):
                await connection.rollback()
                return 1 + await write(order, is_first_try=False)
            await connection.commit()
            return 1

    async with asyncio.timeout(30):
        tries = await asyncio.gather(write((0, 1)), write((1, 0)))
    assert sum(tries) == 3  # one of them was broken off
    batches = [
        [{"stream": streams[part], "name": "changed"} for part in order]
        for order in ((0, 1), (1, 0))
        for _ in range(20)
    ]
    async with asyncio.timeout(30):
        await asyncio.gather(*(app.append_many("races", batch) for batch in batches))  # never against one another
    assert (await app.categories())[0].appended == before + 4 + 80
    await app.close()
