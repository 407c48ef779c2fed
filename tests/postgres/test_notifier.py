"""Wake-ups from other processes: coalesced, and back by themselves after the session was lost."""

from __future__ import annotations

import asyncio
import secrets
import time

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres import listening
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
    monkeypatch.setattr(listening, "_PROBE_EVERY", 0.5)
    monkeypatch.setattr(listening, "_PROBE_PATIENCE", 0.5)
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
