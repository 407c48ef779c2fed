"""Signals: set once, from any thread, waited for in coroutines and in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.runtime.signals import Signal

SOON = 5.0


async def test_everybody_who_waits_hears_of_it_in_a_coroutine_and_in_a_thread():
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    blocked = asyncio.create_task(asyncio.to_thread(signal.wait_blocking, SOON))
    await asyncio.sleep(0)
    assert not signal

    await asyncio.to_thread(signal.set)

    async with asyncio.timeout(SOON):
        await asyncio.gather(*waiting)
        assert await blocked
        await signal.wait()  # at once from now on
    assert signal.is_set()


def test_a_loop_that_was_closed_while_somebody_waited_there_does_not_keep_others_from_hearing():
    signal = Signal()
    closed = asyncio.new_event_loop()
    stuck = closed.create_task(signal.wait())
    closed.run_until_complete(asyncio.sleep(0))
    assert len(signal._waiting) == 1
    closed.close()

    async def wait() -> None:
        waiting = asyncio.create_task(signal.wait())
        await asyncio.sleep(0)
        signal.set()
        await asyncio.wait_for(waiting, SOON)

    asyncio.run(wait())
    assert signal.wait_blocking(0)
    stuck._log_destroy_pending = False  # type: ignore[attr-defined]  # left behind on purpose


async def test_a_wait_that_was_given_up_leaves_nothing_behind():
    signal = Signal()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(signal.wait(), 0.001)
    assert signal._waiting == []

    other = asyncio.create_task(signal.wait())
    given_up = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait({given_up})
    assert len(signal._waiting) == 1
    signal.set()
    await asyncio.wait_for(other, SOON)


async def test_one_who_is_cancelled_in_the_moment_when_it_is_set_does_not_stumble():
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.set()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert signal._waiting == []


def test_a_wait_in_a_thread_ends_after_its_time():
    signal = Signal()

    assert not signal.wait_blocking(0.001)
    threading.Timer(0.01, signal.set).start()
    assert signal.wait_blocking(SOON)
