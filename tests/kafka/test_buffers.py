"""How much of a partition is read ahead."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from holdfast.backends.kafka import buffers
from holdfast.backends.kafka.buffers import BATCHES_AT_ONCE, MOST_BYTES, PartitionBuffer
from holdfast.backends.kafka.homes import Home
from holdfast.model.event import StoredEvent
from holdfast.streams.share_consumer import ShareConsumer


def a_buffer(**settings: Any) -> PartitionBuffer:
    return PartitionBuffer(Home("orders", "orders", "id"), 0, generation=1, after=0, **settings)


def an_event(position: int, **parts: Any) -> StoredEvent:
    given = {"stream": "a", "payload": "1", "headers": None} | parts
    return StoredEvent(
        "id", "orders", name="placed", version=0, partition_id=0, position=position, recorded_us=0, **given
    )


@pytest.mark.parametrize("large", ["payload", "stream", "headers"])
async def test_whatever_is_large_in_a_record_counts_towards_the_bound(large: str):
    buffer = a_buffer()
    text = "x" * (MOST_BYTES // 10)
    part: dict[str, Any] = {large: {"by": text} if large == "headers" else text}
    assert buffer.has_room

    for position in range(1, 11):
        buffer.add([an_event(position, **part)])

    assert buffer.is_full
    await buffer.take(10, 1, 100)  # and what was taken counts no more
    assert buffer.has_room
    assert buffer._bytes == 0


async def test_a_buffer_that_is_dropped_before_its_records_are_taken_says_nothing_of_them():
    buffer = a_buffer()
    buffer.add([an_event(position) for position in (1, 2, 3)])
    buffer.ended_at(3)
    assert buffer.serves(1, 0)

    buffer.drop()  # by the reader's thread, between the two

    assert await buffer.take(0, 10, 1000) == ([], 0)


async def test_of_several_batches_only_the_first_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    buffer = a_buffer()
    buffer.add([an_event(position) for position in range(1, 16)])
    waits = AsyncMock()
    monkeypatch.setattr(buffer, "_wait", waits)

    taken = [len((await buffer.take(0, BATCHES_AT_ONCE * batch, 1000))[0]) for batch in (10, 15, 16)]

    assert taken == [15, 15, 15]
    waits.assert_awaited_once_with(0, 16)


@pytest.mark.parametrize(
    ("number", "sizes"), [(0, []), (3, [3]), (20, [20]), (25, [20]), (69, [20, 20, 20]), (100, [20] * 5)]
)
def test_of_a_fetch_of_several_batches_only_whole_ones_are_handled(number: int, sizes: list[int]):
    consuming: Any = Mock(consumer=Mock(batch=20, takes_batch=True))
    events = [an_event(position) for position in range(1, number + 1)]

    batches = ShareConsumer._batches(consuming, events)

    assert [len(batch) for batch in batches] == sizes
    assert [event.position for batch in batches for event in batch] == list(range(1, sum(sizes) + 1))


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_buffer_that_was_full_tells_when_it_can_be_read_on(monkeypatch: pytest.MonkeyPatch, is_read: bool):
    monkeypatch.setattr(buffers, "MOST_RECORDS", 10)
    told: list[int] = []
    after = 0
    buffer = a_buffer(has_space=lambda: told.append(after))
    buffer.is_assigned = is_read
    buffer.add([an_event(position) for position in range(1, 11)])

    for after in (0, 5, 6, 7):
        await buffer.take(after, 1, 1000)

    assert told == ([] if is_read else [6, 7])
