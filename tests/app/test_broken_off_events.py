"""Handlers that are told to stop: what they did not do is done by the next owner of the share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import Event, EventContext


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    return file_app


async def _positions(app) -> list[int]:
    return [share.position for share in (await app.consumers.show("billing")).shares]


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_an_event_whose_handler_heeds_that_the_share_is_lost_is_left_to_the_next_owner(app, ends):
    entered = threading.Event()

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="skip")
    def billing(event: Event, ctx: EventContext) -> None:
        entered.set()
        assert ctx.lease_lost.wait_blocking(20)
        if ends == "raises":
            raise ValueError("told to stop")

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    node = app.node(timing=QUICK)
    async with running(node):
        await asyncio.to_thread(entered.wait, 20)
        node.stop()
        node.stop()  # do not wait for handlers
    assert await _positions(app) == [0]


async def test_an_async_handler_that_swallows_its_cancellation_has_not_handled_its_event(app):
    entered = asyncio.Event()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    node = app.node(timing=QUICK)
    async with running(node):
        await entered.wait()
        node.stop()
        node.stop()
    assert await _positions(app) == [0]


async def test_a_thread_that_never_looked_whether_the_share_is_lost_has_done_its_work(app):
    entered, go_on = threading.Event(), threading.Event()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event) -> None:
        entered.set()
        assert go_on.wait(20)

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    node = app.node(timing=QUICK)
    async with running(node):
        await asyncio.to_thread(entered.wait, 20)
        node.stop()
        node.stop()
        await asyncio.sleep(0)
        go_on.set()
    assert await _positions(app) == [1]


async def test_a_parked_event_whose_retry_is_broken_off_stays_parked(app):
    entered = threading.Event()
    fails = True

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    def billing(event: Event, ctx: EventContext) -> None:
        if fails:
            raise ValueError("no")
        entered.set()
        assert ctx.lease_lost.wait_blocking(20)

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    node = app.node(timing=QUICK)
    async with running(node):
        await eventually(drained(app))
        fails = False
        await app.consumers.retry_parked("billing")
        await asyncio.to_thread(entered.wait, 20)
        node.stop()
        node.stop()
    (parked,) = await app.consumers.parked("billing")
    assert parked.is_retrying
