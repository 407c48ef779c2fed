"""Notify: notifications arrive, never block, never raise, and stop on unsubscribe."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import Conformance, MakeBackend, a_job, enqueue, finish, hold_one

TIMEOUT = 10.0


def waker() -> tuple[asyncio.Event, Callable[[], None]]:
    """Return an event, and a function that sets it from any thread."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(event.set)

    return event, wake


async def _enqueue_until_notified(backend: Backend, woken: asyncio.Event) -> None:
    """Enqueue until another backend was notified: a notification may be lost while its listener is connecting."""
    async with asyncio.timeout(TIMEOUT):
        waiting = asyncio.create_task(woken.wait())
        while not woken.is_set():
            await enqueue(backend, a_job())
            backend.notifier.notify()
            await asyncio.wait([waiting], timeout=0.2)


class TestNotify(Conformance):
    """`Notifier` within one process."""

    async def test_a_notification_wakes_all_local_listeners(self, backend: Backend) -> None:
        (first, wake_first), (second, wake_second) = waker(), waker()
        stops = [backend.notifier.listen(wake_first), backend.notifier.listen(wake_second)]
        backend.notifier.notify()
        async with asyncio.timeout(TIMEOUT):
            await first.wait()
            await second.wait()
        for stop in stops:
            stop()

    async def test_a_listener_is_called_until_the_returned_function_is_called(self, backend: Backend) -> None:
        (silent, wake_silent), (woken, wake_other) = waker(), waker()
        stop_silent = backend.notifier.listen(wake_silent)
        stop_woken = backend.notifier.listen(wake_other)
        stop_silent()
        stop_silent()  # idempotent
        await asyncio.sleep(0)  # for a call that was under way
        silent.clear()
        backend.notifier.notify()
        async with asyncio.timeout(TIMEOUT):
            await woken.wait()
        assert not silent.is_set()
        stop_woken()

    async def test_a_notification_without_listeners_does_nothing(self, backend: Backend) -> None:
        backend.notifier.notify()

    async def test_a_listener_that_raises_is_removed_and_neither_notify_nor_enqueue_fails(
        self, backend: Backend
    ) -> None:
        calls = 0

        def fail() -> None:
            nonlocal calls
            calls += 1
            raise RuntimeError("Event loop is closed")

        stop_failing = backend.notifier.listen(fail)
        woken, wake = waker()
        stop = backend.notifier.listen(wake)
        backend.notifier.notify()
        async with asyncio.timeout(TIMEOUT):
            await woken.wait()
        await enqueue(backend, a_job())
        for _ in range(5):
            backend.notifier.notify()
        assert 1 <= calls <= 2  # a notification of the watching thread may have been under way
        stop_failing()  # although it was already removed
        stop()


class TestEnds(Conformance):
    """Notifications of ended jobs, within one process."""

    async def test_the_end_of_a_job_wakes_those_that_wait_for_one(self, backend: Backend) -> None:
        woken, wake = waker()
        job = await hold_one(backend)
        stop = backend.notifier.listen_ends(wake)
        await finish(backend, job.lease, Completed())
        backend.notifier.notify_ends()
        async with asyncio.timeout(TIMEOUT):
            await woken.wait()
        stop()

    async def test_a_waiter_that_stopped_is_not_woken(self, backend: Backend) -> None:
        (silent, wake_silent), (woken, wake_other) = waker(), waker()
        stop_silent = backend.notifier.listen_ends(wake_silent)
        stop_woken = backend.notifier.listen_ends(wake_other)
        stop_silent()
        await asyncio.sleep(0)  # for a call that was under way
        silent.clear()
        backend.notifier.expect_ends()
        backend.notifier.notify_ends()
        async with asyncio.timeout(TIMEOUT):
            await woken.wait()
        assert not silent.is_set()
        stop_woken()


class TestEndsOfOthers(Conformance):
    """Notifications of ended jobs across backends."""

    needs: ClassVar[frozenset[str]] = frozenset({"notifies", "shared"})

    async def test_a_job_that_ends_elsewhere_wakes_those_that_announced_themselves(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        woken, wake = waker()
        stops = [other.notifier.listen_ends(wake), backend.notifier.listen(lambda: None)]
        await asyncio.sleep(0.5)  # until both listen; what the beginning has notified of does not count
        woken.clear()
        async with asyncio.timeout(TIMEOUT):
            waiting = asyncio.create_task(woken.wait())
            while not woken.is_set():
                other.notifier.expect_ends()
                await asyncio.wait([waiting], timeout=0.1)
                await finish(backend, (await hold_one(backend)).lease, Completed())
                await asyncio.wait([waiting], timeout=0.2)
        for stop in stops:
            stop()


class TestNotifyOthers(Conformance):
    """`Notifier` across backends."""

    needs: ClassVar[frozenset[str]] = frozenset({"notifies", "shared"})

    async def test_a_notification_of_new_work_wakes_listeners_in_other_processes(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        woken, wake = waker()
        stop = other.notifier.listen(wake)
        await _enqueue_until_notified(backend, woken)
        stop()

    async def test_notifications_from_other_processes_continue_after_a_listener_raised(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()

        def fail() -> None:
            raise RuntimeError("Event loop is closed")

        stop_failing = other.notifier.listen(fail)
        woken, wake = waker()
        stop = other.notifier.listen(wake)
        for _ in range(2):
            woken.clear()
            await _enqueue_until_notified(backend, woken)
        stop_failing()
        stop()
