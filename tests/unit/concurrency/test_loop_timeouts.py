"""Timeouts of an event loop: run at their time, in their order, and never once they are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.concurrency.loop_timeouts import set_timeout
from holdfast.concurrency.timeouts import limited


async def test_they_run_in_order_and_not_before_their_time():
    loop, ran, done = asyncio.get_running_loop(), list[tuple[str, float]](), asyncio.Event()
    began = loop.time()
    set_timeout(0.03, lambda: ran.append(("first", loop.time() - began)))
    await asyncio.sleep(0.01)
    set_timeout(0.01, lambda: ran.append(("short", loop.time() - began)))
    set_timeout(0.03, done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert [name for name, _ in ran] == ["short", "first"]
    assert all(at >= wanted - 0.001 for (_, at), wanted in zip(ran, (0.02, 0.03), strict=True))


async def test_one_that_is_cancelled_never_runs_and_delays_no_other():
    ran, done = list[str](), asyncio.Event()
    kept = [set_timeout(0.01, lambda: ran.append("cancelled")) for _ in range(3)]
    set_timeout(0.01, done.set)
    for timeout in kept:
        timeout.cancel()
        timeout.cancel()
    await asyncio.wait_for(done.wait(), 5)
    assert ran == []


async def test_an_action_that_raises_keeps_no_other_from_running():
    caught, done = list[str](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(str(context["exception"])))

    def fail() -> None:
        raise RuntimeError("broken")

    set_timeout(0.01, fail)
    set_timeout(0.01, done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert caught == ["broken"]


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_block_is_broken_off_only_if_it_takes_longer(is_late: bool):
    late = asyncio.Event()
    with limited(0.01, late.set):
        if is_late:
            await asyncio.wait_for(late.wait(), 5)
    await asyncio.sleep(0.03)
    assert late.is_set() is is_late


def test_a_second_loop_has_its_own():
    for _ in range(2):

        async def wait() -> None:
            done = asyncio.Event()
            set_timeout(0.01, done.set)
            set_timeout(60, done.clear)
            await asyncio.wait_for(done.wait(), 5)

        asyncio.run(wait())
