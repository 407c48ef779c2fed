"""Events whose handler fails: blocked, skipped, parked."""

from __future__ import annotations

import asyncio

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import Event, EventContext


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    return file_app


async def test_an_event_that_always_fails_blocks_its_partition_and_no_other(app):
    handled: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01)
    async def billing(event: Event) -> None:
        if event.stream == "bad":
            raise ValueError("no")
        handled.append(event.stream)

    await app.category("orders", partitions=16)
    await append(app, "bad", 2)
    await append(app, "good", 3)
    async with running(app.node(timing=QUICK)):

        async def others():
            return len(handled) == 3 and (await app.consumers.show("billing")).lag == 2  # the position follows

        await eventually(others)


async def test_a_skipped_event_is_passed_over(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="skip")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 1:
            raise ValueError("no")
        handled.append(event.payload["n"])

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert handled == [0, 2]


async def test_a_parked_event_holds_back_its_stream_alone_and_can_be_retried_in_order(app):
    handled: list[tuple[str, int]] = []
    healed = False

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="park")
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction():
            if event.stream == "a" and event.payload["n"] == 1 and not healed:
                raise ValueError("no")
            handled.append((event.stream, event.payload["n"]))

    await app.category("orders", partitions=1)
    await append(app, "a", 4)
    await append(app, "b", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert handled == [("a", 0), ("b", 0), ("b", 1)]
        parked = await app.consumers.parked("billing")
        assert [(each.stream, each.attempts) for each in parked] == [("a", 2), ("a", 0), ("a", 0)]
        assert parked[0].failure is not None
        assert parked[0].failure.error_class == "ValueError"
        assert await app.consumers.retry_parked("billing") == 3

        async def failed_again():
            first = (await app.consumers.parked("billing"))[0]
            return first.attempts == 3 and not first.is_retrying

        await eventually(failed_again)
        assert len(await app.consumers.parked("billing")) == 3
        healed = True
        await app.consumers.retry_parked("billing")

        async def flows():
            return not await app.consumers.parked("billing")

        await eventually(flows)
    assert [number for stream, number in handled if stream == "a"] == [0, 1, 2, 3]


async def test_dropped_parked_events_let_their_stream_flow_again(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 0 and event.version == 1:
            raise ValueError("no")
        handled.append(event.version)

    await append(app, "a", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert await app.consumers.drop_parked("billing", stream="a") == 2
        await append(app, "a", 2)

        async def flows():
            return handled == [3, 4]

        await eventually(flows)


async def test_the_time_limit_of_an_event_ends_an_async_handler(app):
    tries: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01, timeout=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.sleep(60)

    await append(app, "a", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert tries == [1, 2]
