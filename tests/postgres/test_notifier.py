"""Wake-ups from other processes: coalesced, and back by themselves after the session was lost."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres import notify_listener
from holdfast.backends.postgres.backend import open_backend
from holdfast.store.backend import Backend
from holdfast.testing.conformance.notify import waker
from holdfast.testing.stores import open_store
from holdfast.torture.proxy import Proxy


async def _hears(backend: Backend, heard: asyncio.Event) -> None:
    async with asyncio.timeout(15):
        waiting = asyncio.create_task(heard.wait())
        while not heard.is_set():
            backend.notifier.notify()
            await asyncio.wait([waiting], timeout=0.1)


async def _threads_end() -> None:
    """Wait for those that were still trying to connect."""
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-store-postgres"):
            await asyncio.to_thread(thread.join, 10)


async def test_a_listener_whose_session_was_terminated_listens_again(backend: Backend, url: str):
    name = f"listens_{secrets.token_hex(4)}"
    async with open_store(f"{url}&application_name={name}") as other:
        heard, wake = waker()
        stop = other.notifier.listen(wake)
        await _hears(backend, heard)
        with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
            query = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = %s"
            assert len(connection.execute(query, (name,)).fetchall()) >= 2  # the pool's, and the one that listens
        heard.clear()
        await _hears(backend, heard)
        stop()


async def test_many_hints_are_told_to_others_as_few(backend: Backend, url: str):
    channel = f"holdfast_{parts_of(url)[1]}"
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            backend.notifier.notify()
            await asyncio.sleep(0.001)
        told = list(connection.notifies(timeout=0.3))
    assert 2 <= len(told) <= 30  # after 5, 10, 20 and 40 ms, then every 50 ms: 13 if nothing holds the caller up


async def test_hints_that_come_one_at_a_time_are_each_told(backend: Backend, url: str):
    channel = f"holdfast_{parts_of(url)[1]}"
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
        backend.notifier.notify()
        assert list(connection.notifies(timeout=10, stop_after=1))  # the line is open
        for _ in range(10):
            await asyncio.sleep(0.06)
            backend.notifier.notify()
        told = list(connection.notifies(timeout=1, stop_after=10))
    assert len(told) == 10


async def test_a_process_is_not_woken_by_its_own_echo(backend: Backend):
    woken: list[float] = []
    arrived, set_arrived = waker()

    def wake() -> None:
        woken.append(time.monotonic())
        set_arrived()

    stop = backend.notifier.listen(wake)
    async with asyncio.timeout(10):
        await arrived.wait()  # once when the listener has arrived
    before = len(woken)
    backend.notifier.notify()
    await asyncio.sleep(0.3)  # an echo would have come by now
    assert len(woken) == before + 1
    stop()


async def test_a_listener_whose_link_fell_silent_notices_it_by_its_probe_and_listens_again(
    backend: Backend, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notify_listener, "_PROBE_EVERY", 0.5)
    monkeypatch.setattr(notify_listener, "_PROBE_TIMEOUT", 0.5)
    proxy = Proxy(url)
    async with open_store(proxy.url) as other:
        heard, wake = waker()
        stop = other.notifier.listen(wake)
        await _hears(backend, heard)
        proxy.half()
        heard.clear()
        began = time.monotonic()
        await _hears(backend, heard)
        assert time.monotonic() - began < 10
        proxy.hole()
        stop()  # and it ends, though nothing is answered
    proxy.close()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["connecting", "listening"])
async def test_whoever_ends_to_listen_is_not_held_up_by_a_server_that_does_not_answer(url: str, step: str):
    proxy = Proxy(url)
    async with open_store(proxy.url) as backend:
        if step == "connecting":
            proxy.hole()
        arrived, wake = waker()
        stop = backend.notifier.listen(wake)
        if step == "listening":
            await arrived.wait()
            proxy.hole()
        began = time.monotonic()
        stop()
        assert time.monotonic() - began < 2  # seconds: what it must not wait for takes five
        proxy.refuse()
    await _threads_end()
    proxy.close()


@pytest.mark.slow
async def test_the_event_loop_goes_on_while_a_store_is_closed_whose_server_does_not_answer(url: str):
    proxy = Proxy(url)
    backend = open_backend(proxy.url)
    await backend.open()
    proxy.hole()
    backend.notifier.listen(lambda: None)
    backend.notifier.notify()  # a hint that cannot be sent either
    await asyncio.sleep(0.2)
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await backend.close()
    assert time.monotonic() - began < 4  # seconds: a connection that is not made is given up after five
    await asyncio.sleep(0.05)
    watching.cancel()
    assert longest < 0.5
    proxy.refuse()
    await _threads_end()
    proxy.close()


async def test_the_threads_of_a_store_have_ended_when_it_is_closed(url: str):
    backend = open_backend(url)
    await backend.open()
    before = set(threading.enumerate())
    arrived, wake = waker()
    backend.notifier.listen(wake)
    await arrived.wait()
    backend.notifier.notify()
    begun = {thread for thread in threading.enumerate() if thread.name.startswith("holdfast-store-postgres")} - before
    await backend.close()
    assert len(begun) == 2
    assert not any(thread.is_alive() for thread in begun)


async def test_a_hint_for_which_no_thread_can_be_had_fails_nobody_and_the_next_is_sent(
    backend: Backend, url: str, monkeypatch: pytest.MonkeyPatch
):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        backend.notifier.notify()

    async with open_store(url) as other:
        heard, wake = waker()
        stop = other.notifier.listen(wake)
        await _hears(backend, heard)
        stop()
