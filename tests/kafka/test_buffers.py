"""How much of a partition is read ahead."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.backends.kafka.buffers import MOST_BYTES, PartitionBuffer
from holdfast.backends.kafka.homes import Home
from holdfast.model.event import StoredEvent


@pytest.mark.parametrize("large", ["payload", "stream", "headers"])
async def test_whatever_is_large_in_a_record_counts_towards_the_bound(large: str):
    buffer = PartitionBuffer(Home("orders", "orders", "id"), 0, generation=1, after=0)
    text = "x" * (MOST_BYTES // 10)
    parts: dict[str, Any] = {"stream": "a", "payload": "1", "headers": None}
    parts[large] = {"by": text} if large == "headers" else text
    assert buffer.has_room

    for position in range(1, 11):
        event = StoredEvent(
            "id", "orders", name="placed", version=0, partition_id=0, position=position, recorded_us=0, **parts
        )
        buffer.add([event])

    assert buffer.is_full
    await buffer.take(10, 1, 100)  # and what was taken counts no more
    assert buffer.has_room
    assert buffer._bytes == 0
