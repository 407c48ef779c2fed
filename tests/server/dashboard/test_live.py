"""Live updates: what is sent, when, and at what cost."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from holdfast.server import time_limit
from holdfast.server.access import Caller, Role
from holdfast.server.dashboard import live
from holdfast.server.dashboard.frame import Frame
from holdfast.server.dashboard.live import LiveHub, ageless, parts_of


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL", 0.02)


def frame(here: str, role: Role = Role.ADMIN) -> Frame:
    return Frame(Caller("test", role), "", "sqlite://", here)


async def parts(events, number: int) -> dict[str, str]:
    """Return the next parts that arrive."""
    found: dict[str, str] = {}
    async with asyncio.timeout(10):
        while len(found) < number:
            data = await anext(events)
            if data.startswith(b"event: part"):
                event = json.loads(data.split(b"data: ")[1])
                found[event["part"]] = event["html"]
    return found


async def test_a_tab_gets_the_parts_of_its_page_then_those_that_change(site):
    async with aclosing(LiveHub().events(site.app, "/queues", frame("/queues"))) as events:
        assert "No queues yet" in (await parts(events, 1))["queues"]
        await site.send.enqueue("x")
        assert "mails" in (await parts(events, 1))["queues"]


async def test_nothing_is_sent_while_nothing_changes(site):
    await site.failed_job()
    async with aclosing(LiveHub().events(site.app, "/jobs?state=failed", frame("/jobs"))) as events:
        assert set(await parts(events, 2)) == {"tabs", "jobs"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):  # more than ten looks
                await anext(events)


async def test_tabs_on_the_same_page_share_one_reading(site):
    hub = LiveHub()
    tabs = [hub.events(site.app, "/workers", frame("/workers")) for _ in range(20)]
    for tab in tabs:
        assert await parts(tab, 1)
    watched = {address: len(watch.tabs) for (address, *_), watch in hub._watches.items()}
    for tab in tabs:
        await tab.aclose()

    assert watched == {"/workers": 20}


async def test_the_store_spends_a_tenth_of_its_time_on_live_updates(site, monkeypatch):
    looks: list[float] = []

    async def slow(*_) -> str:
        looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.03)
        return "<!--live x-->1<!--/live x-->"

    monkeypatch.setattr(live.Watch, "_rendered", slow)
    hub = LiveHub()
    tabs = [hub.events(site.app, path, frame(path)) for path in ("/workers", "/queues")]
    for tab in tabs:
        assert await parts(tab, 1)
        await tab.aclose()

    assert looks[1] - looks[0] >= 0.3


async def test_updates_go_on_soon_after_the_store_hung(site, monkeypatch):
    hangs = True

    async def hung(*_) -> str:
        if hangs:
            await asyncio.sleep(30)
        return "<!--live x-->1<!--/live x-->"

    monkeypatch.setattr(live.Watch, "_rendered", hung)
    monkeypatch.setattr(time_limit, "TIME_LIMIT", 0.5)
    monkeypatch.setattr(live, "_REST_AFTER_FAILURE", 0.1)
    async with aclosing(LiveHub().events(site.app, "/queues", frame("/queues"))) as events, asyncio.timeout(3):
        while not (await anext(events)).startswith(b"event: problem"):
            pass
        hangs = False
        assert await parts(events, 1) == {"x": "1"}


async def test_a_browser_is_told_to_connect_again_soon(site):
    async with aclosing(LiveHub().events(site.app, "/queues", frame("/queues"))) as events:
        assert [await anext(events) for _ in range(2)] == [b": connected\n\n", b"retry: 1000\n\n"]


async def test_what_a_role_may_not_do_is_not_sent_to_it(site):
    await site.send.enqueue("x")
    hub = LiveHub()
    async with aclosing(hub.events(site.app, "/queues", frame("/queues"))) as operators:
        assert "Pause" in (await parts(operators, 1))["queues"]
        async with aclosing(hub.events(site.app, "/queues", frame("/queues", Role.READ))) as readers:
            assert "Pause" not in (await parts(readers, 1))["queues"]


@pytest.mark.parametrize("is_closed_at_once", [False, True])
async def test_the_loop_ends_with_the_last_tab(site, is_closed_at_once):
    hub = LiveHub()
    async with aclosing(hub.events(site.app, "/queues", frame("/queues"))) as events:
        assert await anext(events) == b": connected\n\n"
        if not is_closed_at_once:
            await parts(events, 1)
        assert hub._loop is not None
    async with asyncio.timeout(5):
        await hub._loop
    assert not hub._watches


async def test_the_late_end_of_a_tab_does_not_end_the_updates_of_others(site):
    hub = LiveHub()
    slow, quick, new = (hub.events(site.app, "/queues", frame("/queues")) for _ in range(3))
    await parts(slow, 1)
    (watch,) = hub._watches.values()
    watch.tabs.clear()  # it did not read, and was dropped
    await parts(quick, 1)
    await quick.aclose()
    await parts(new, 1)
    await slow.aclose()

    await site.send.enqueue("x")
    assert "mails" in (await parts(new, 1))["queues"]
    await new.aclose()


async def test_a_failing_store_is_reported_and_the_tab_stays_connected(site, monkeypatch):
    async with aclosing(LiveHub().events(site.app, "/queues", frame("/queues"))) as events:
        await parts(events, 1)

        async def broken(**_):
            raise OSError("the disk is gone")

        monkeypatch.setattr(site.app.queues, "list", broken)
        async with asyncio.timeout(10):
            while not (await anext(events)).startswith(b"event: problem"):
                pass
        monkeypatch.undo()
        monkeypatch.setattr(live, "INTERVAL", 0.02)
        await site.send.enqueue("x")
        assert "mails" in (await parts(events, 1))["queues"]


def test_parts_are_what_is_between_the_marks():
    assert parts_of("a<!--live x-->1<!--/live x-->b<!--live y-->2<!--/live y-->") == {"x": "1", "y": "2"}


def test_an_age_is_no_change():
    assert ageless('<time datetime="t">3s ago</time>') == ageless('<time datetime="t">5s ago</time>')
    assert ageless('<time datetime="t">3s ago</time>') != ageless('<time datetime="u">3s ago</time>')
