"""Reports of nodes at the gate of a process whose handlers keep the write lock busy."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.backends.sqlite.backend import SqliteBackend, open_backend
from holdfast.model.allocation import NodeKey, Timing
from holdfast.store.stream_values import NewNode

NODE = NodeKey("node", "life-1")
TIMING = Timing()


async def in_line(backend: SqliteBackend, *, first: int, others: int) -> None:
    gate = backend._parts.gate
    async with asyncio.timeout(5):
        while (len(gate._first), len(gate._waiting)) != (first, others):  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)


async def test_a_report_waits_neither_for_other_writers_nor_for_the_leaders_verbs(tmp_path):
    backend = open_backend(f"sqlite:///{tmp_path}/streams.db?synchronous=normal")
    await backend.open()
    store = backend.streams.allocations
    await store.join(NewNode(NODE, "here", 1, (), TIMING))
    gate = backend._parts.gate
    gate.enter()  # as a transaction of a handler does
    write = asyncio.create_task(backend.streams.events.open_category("orders", 1))
    await in_line(backend, first=0, others=1)
    transaction = asyncio.create_task(asyncio.to_thread(gate.enter))  # the next one
    await in_line(backend, first=0, others=2)
    lead = asyncio.create_task(store.lead(NODE, timedelta(seconds=6)))
    heartbeat = asyncio.create_task(store.heartbeat(NODE, TIMING))
    await in_line(backend, first=2, others=2)
    gate.leave()
    assert (await heartbeat).is_known
    assert await lead is not None
    await write
    await transaction
    gate.leave()
    await backend.close()


async def test_a_report_tells_how_long_it_waited_at_the_gate(tmp_path):
    backend = open_backend(f"sqlite:///{tmp_path}/streams.db?synchronous=normal")
    await backend.open()
    store = backend.streams.allocations
    await store.join(NewNode(NODE, "here", 1, (), TIMING))
    gate = backend._parts.gate
    gate.enter()
    heartbeat = asyncio.create_task(store.heartbeat(NODE, TIMING))
    await in_line(backend, first=1, others=0)
    await asyncio.sleep(0.2)
    gate.leave()
    assert timedelta(seconds=0.2) <= (await heartbeat).waited < timedelta(seconds=5)
    await backend.close()


async def test_in_memory_a_look_at_what_is_owned_goes_before_other_writers_too():
    backend = open_backend("sqlite://")
    await backend.open()
    store = backend.streams.allocations
    await store.join(NewNode(NODE, "here", 1, (), TIMING))
    gate = backend._parts.gate
    gate.enter()
    look = asyncio.create_task(store.owned(NODE))
    await in_line(backend, first=1, others=0)
    gate.leave()
    assert (await look).is_known
    await backend.close()
