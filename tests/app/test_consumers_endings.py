"""Nodes that end while their handlers run, and grants that follow one another faster than handlers end."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import msgspec
import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, query, running

from holdfast import Event

HELD = "select owner is not null from holdfast_allocation"


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    await file_app.category("orders", partitions=1)
    return file_app


async def is_held(app) -> bool:
    return bool((await query(app, HELD))[0][0])


async def cancelled(task) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_cancelled_node_keeps_its_shares_until_its_handlers_have_cleaned_up(app):
    begun = asyncio.Event()
    held: list[bool] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)
            held.append(await is_held(app))

    await append(app, "a", 1)
    before = asyncio.all_tasks()
    run = asyncio.create_task(app.node(timing=QUICK).run())
    await begun.wait()
    await cancelled(run)
    assert held == [True]
    assert asyncio.all_tasks() == before, "something of the node outlives it"
    assert not await is_held(app)
    assert await app.nodes() == []


async def test_a_broken_node_waits_for_its_other_handlers_before_it_leaves(app):
    begun = asyncio.Event()
    held: list[bool] = []

    @app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)
            held.append(await is_held(app))

    await append(app, "a", 1)
    node = app.node(timing=QUICK)
    run = asyncio.create_task(node.run())
    await begun.wait()
    allocations = type(app.backend.streams.allocations)
    with pytest.MonkeyPatch.context() as patch:

        async def fail(*_):
            raise RuntimeError("an error that nobody foresaw")

        patch.setattr(allocations, "survey", fail)
        with pytest.raises(Exception, match="nobody foresaw"):
            await run
    assert held == [True]
    assert not await is_held(app)


async def test_a_node_does_not_free_the_share_of_a_thread_that_goes_on(app):
    begun, go_on, ended = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        loop.call_soon_threadsafe(ended.set)

    await append(app, "a", 1)
    before = asyncio.all_tasks()
    node = app.node(timing=QUICK, stuck_grace=0.2)
    run = asyncio.create_task(node.run())
    await begun.wait()
    await cancelled(run)
    try:
        assert asyncio.all_tasks() == before, "something of the node outlives it"
        assert await is_held(app)
        assert [view.node for view in await app.nodes()] == [node.node]
    finally:
        go_on.set()
    await ended.wait()


async def test_a_cancelled_node_leaves_as_soon_as_its_thread_has_ended(app):
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()

    await append(app, "a", 1)
    run = asyncio.create_task(app.node(timing=QUICK).run())
    await begun.wait()
    run.cancel()
    await asyncio.sleep(0.3)
    assert not run.done()
    assert await is_held(app)
    go_on.set()
    async with asyncio.timeout(5):
        with contextlib.suppress(asyncio.CancelledError):
            await run
    assert not await is_held(app)


async def test_a_grant_that_is_revoked_while_it_waits_for_its_predecessor_is_given_back(app):
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.consumer("billing", category="orders", poll_interval=0.05)
    def billing(event: Event) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()

    async def state():
        return (await query(app, "select state from holdfast_allocation"))[0][0]

    def becomes(wanted):
        async def look():
            return await state() == wanted

        return look

    await append(app, "a", 1)
    timing = msgspec.structs.replace(QUICK, drain=None)
    async with running(app.node(timing=timing)):
        await begun.wait()
        await query(app, "update holdfast_allocation set generation = generation + 1, state = 'free', owner = null")
        await eventually(becomes("granted"))  # to the same node, whose handler still runs under the old grant
        await asyncio.sleep(0.5)
        await app.consumers.pause("billing")
        await eventually(becomes("revoking"))
        await asyncio.sleep(0.5)
        go_on.set()
        await eventually(becomes("free"), within=5.0)
        await app.consumers.resume("billing")
        await eventually(drained(app))
