"""Work that must not be left half-way."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.concurrency.uncancellable import uncancellable


async def test_what_it_returns_or_raises_is_the_callers():
    async def seven() -> int:
        return 7

    async def bad() -> int:
        raise ValueError("no")

    assert await uncancellable(seven()) == 7
    with pytest.raises(ValueError, match="no"):
        await uncancellable(bad())


@pytest.mark.parametrize("fails", [False, True])
async def test_a_caller_that_is_cancelled_again_and_again_waits_for_the_end_and_is_cancelled_then(fails):
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()
        if fails:
            raise ValueError("too late to be told")

    caller = asyncio.create_task(uncancellable(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()
