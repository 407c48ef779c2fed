"""Live updates: one loop renders what open tabs show, and sends the parts that have changed.

Tabs with the same address and role share one rendering. The pages are read one after another, each at most every
`INTERVAL` seconds, and with pauses so long that the store spends at most a tenth of its time on them: what a thousand
open tabs cost the store is bounded, and their updates come less often. No store connection is held in between.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

from holdfast.server.dashboard.frame import Frame, render
from holdfast.server.dashboard.pages import PageRequest, page_at
from holdfast.server.problems import Problem, problem_of
from holdfast.server.time_limit import within_time

if TYPE_CHECKING:
    from holdfast.app.app import App

INTERVAL: Final = 2.0
_SHARE: Final = 10
_KEEP_ALIVE: Final = 15.0
_LONGEST: Final = 300.0  # seconds; then the browser connects again, and its access is checked again
_RETRY: Final = 1000  # milliseconds; the page reports a server that stays away for longer than that
_REST_AFTER_FAILURE: Final = 15.0  # seconds: a store that hung did no work, and all tabs wait for it
_MOST_UNSENT: Final = 64
_PART: Final = re.compile(r"<!--live (\w+)-->(.*?)<!--/live \1-->", re.DOTALL)
_TIME: Final = re.compile(r"(<time[^>]*>)[^<]*(?=</time>)")


def parts_of(html: str) -> dict[str, str]:
    """Return the parts of a page that may change, by name."""
    return {match[1]: match[2] for match in _PART.finditer(html)}


def ageless(html: str) -> str:
    """Return HTML without the texts of its times: the browser ages them itself, so they are no change."""
    return _TIME.sub(r"\1", html)


def event(name: str, **data: str) -> bytes:
    """Return an event as it is sent."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


class Watch:
    """An address that open tabs show, for one role; `tabs` are the events that each has not sent yet."""

    def __init__(self, address: str, frame: Frame) -> None:
        self.address = address
        self.frame = frame
        self.tabs: set[asyncio.Queue[bytes]] = set()
        self.sent: dict[str, str] = {}
        self.html: dict[str, str] = {}
        self.due = 0.0

    async def look(self, app: App) -> bool:
        """Read the page again, and send what has changed; return whether it could be read."""
        try:
            async with within_time():
                html = await self._rendered(app)
        except Exception as error:  # noqa: BLE001 - whatever it is, the tabs must know that their data is old
            self._send(event("problem", detail=problem_of(error).detail))
            return False
        self.html = parts_of(html)
        for part, text in self.html.items():
            if self.sent.get(part) != ageless(text):
                self.sent[part] = ageless(text)
                self._send(event("part", part=part, html=text))
        return True

    async def _rendered(self, app: App) -> str:
        path, _, query = self.address.partition("?")
        found = page_at(path)
        if found is None:
            raise Problem(404, "not-found", f"there is no page {path}")
        page, params = found
        values = await page.read(app, PageRequest(params, dict(parse_qsl(query))))
        return render(page.template, self.frame, {**values, "title": page.title})

    def _send(self, data: bytes) -> None:
        for tab in list(self.tabs):
            if tab.full():  # too slow: disconnect it; it gets all parts on reconnecting
                self.tabs.discard(tab)
            else:
                tab.put_nowait(data)

    def join(self) -> asyncio.Queue[bytes]:
        """Return the events of a new tab, which begin with the parts as they were last read."""
        tab: asyncio.Queue[bytes] = asyncio.Queue(_MOST_UNSENT)
        for part, text in self.html.items():
            tab.put_nowait(event("part", part=part, html=text))
        self.tabs.add(tab)
        return tab


class LiveHub:
    """The watches of one server, and the loop that looks."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str, str], Watch] = {}
        self._loop: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()

    async def events(self, app: App, address: str, frame: Frame) -> AsyncGenerator[bytes]:
        """Yield the events of one tab until it is closed, or for some minutes."""
        role = frame.caller.role
        key = address, frame.prefix, "" if role is None else role.name
        watch = self._watches.setdefault(key, Watch(address, frame))
        tab = watch.join()
        try:
            self._joined.set()
            if self._loop is None or self._loop.done():
                self._loop = asyncio.create_task(self._look(app))
            yield b": connected\n\n"
            yield b"retry: %d\n\n" % _RETRY
            ends = time.monotonic() + _LONGEST
            while time.monotonic() < ends and tab in watch.tabs:
                data = b": still here\n\n"
                with suppress(TimeoutError):
                    async with asyncio.timeout(_KEEP_ALIVE):
                        data = await tab.get()
                yield data
        finally:
            watch.tabs.discard(tab)
            if not watch.tabs and self._watches.get(key) is watch:
                del self._watches[key]

    async def _look(self, app: App) -> None:
        """Look at one address after another while tabs are open."""
        while self._watches:
            watch = min(self._watches.values(), key=lambda each: each.due)
            wait = watch.due - time.monotonic()
            if wait > 0:
                self._joined.clear()
                with suppress(TimeoutError):  # a new tab is served at once
                    async with asyncio.timeout(wait):
                        await self._joined.wait()
                continue
            began = time.monotonic()
            was_read = await watch.look(app)
            rest = (time.monotonic() - began) * (_SHARE - 1)
            watch.due = began + INTERVAL
            await asyncio.sleep(rest if was_read else min(rest, _REST_AFTER_FAILURE))
