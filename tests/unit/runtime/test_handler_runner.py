"""Handlers in the event loop and in threads: their time limits, and what the thread that finds stuck handlers sees."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.runtime.handler_runner import HandlerRunner, TimeLimitReached


@pytest.fixture
def handlers():
    runner = HandlerRunner[str]("test-handler", clock=time.monotonic)
    yield runner
    runner.close()


async def test_an_async_handler_is_cancelled_at_its_limit_and_only_then_is_its_limit_gone(handlers):
    seen: list[object] = []

    async def handler() -> None:
        try:
            seen.append(handlers.limits["key"][1])
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(TimeLimitReached, match=r"time limit of 0\.01 s"):
        await handlers.in_loop(handler, "subject", "key", 0.01)
    assert seen == ["subject", "cancelled"]
    assert handlers.limits == {}


async def test_a_timeout_of_the_handlers_own_is_not_taken_for_the_limit(handlers):
    async def handler() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own") as raised:
        await handlers.in_loop(handler, "subject", "key", 60.0)
    assert not isinstance(raised.value, TimeLimitReached)


async def test_a_late_thread_is_reported_once_and_waited_for(handlers):
    may_end, late = threading.Event(), []

    def report() -> None:
        late.append(dict(handlers.limits))
        may_end.set()

    assert await handlers.in_thread(may_end.wait, "subject", "key", 0.01, late=report) is True
    assert [limits["key"][1] for limits in late] == ["subject"]
    assert handlers.limits == {}


async def test_a_handler_without_a_limit_is_never_stuck(handlers):
    async def handler() -> dict[object, object]:
        return dict(handlers.limits)

    assert await handlers.in_loop(handler, "subject", "key", None) == {}
    assert await handlers.in_thread(lambda: dict(handlers.limits), "subject", "key") == {}


async def test_a_refused_thread_raises_before_anything_is_awaited(handlers, monkeypatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        handlers.in_thread(lambda: None, "subject", "key")
