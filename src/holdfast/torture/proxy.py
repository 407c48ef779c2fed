"""A TCP proxy for a server that breaks connections in every way a network does, and around a COMMIT or a statement.

It runs an event loop in its own thread, on loopback only. Faults affect the existing connections, and `hole` and
`refuse` new ones as well; `heal` lets new connections through, while a connection that lost bytes stays silent.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal
from weakref import WeakSet

from holdfast.torture.wire import PostgresWire, Wire

_BEGINS = re.compile(r"\s*(begin|start\s+transaction)\b", re.IGNORECASE)
_ENDS = re.compile(r"\s*(commit|end|abort|rollback(?!\s+(work\s+|transaction\s+)?to\b))\b", re.IGNORECASE)
_ENDS_WITH_IT = re.compile(r";\s*(commit|rollback)\s*\Z", re.IGNORECASE)  # as the last statement of a message
When = Literal["before", "after"]
_CHUNK = 65536
_PACKET = 24  # bytes; at least as long as the packet that ends a reply


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)


class ProxiedConnection:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._requests = proxy.wire.requests()
        self.drops_requests = self.drops_replies = False
        self._cut_when_ready = False
        self._is_in_transaction = False
        self._swallowed = b""

    async def run(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        """Forward until either side closes."""
        pumps = [asyncio.ensure_future(self._ask(client)), asyncio.ensure_future(self._answer(server))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.close()

    async def _ask(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                for message, statement in self._requests.feed(data):
                    if statement is not None and self._meets_its_cut(statement):
                        return
                    if not self.drops_requests:
                        await self._pass_on(self._server, message)

    def _meets_its_cut(self, statement: str) -> bool:
        when = self._proxy.cut_at(statement, is_alone=not self._is_in_transaction)
        if _BEGINS.match(statement):
            self._is_in_transaction = True
        if _ENDS.match(statement) or _ENDS_WITH_IT.search(statement):
            self._is_in_transaction = False
        if when == "before":
            self.cut()
        elif when == "after":
            self._cut_when_ready = self.drops_replies = True
        return when == "before"

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if not self.drops_replies:
                    await self._pass_on(self._client, data)
                elif self._cut_when_ready:
                    self._swallowed = self._swallowed[-_PACKET:] + data
                    if self._proxy.wire.is_answered(self._swallowed):
                        self.cut()
                        return

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._proxy.delay:
            await asyncio.sleep(self._proxy.delay)
        writer.write(data)
        await writer.drain()

    def cut(self) -> None:
        """Reset both sides."""
        self._proxy.links_cut += 1
        for writer in (self._client, self._server):
            line = writer.get_extra_info("socket")
            with suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        """Close both sides cleanly."""
        for writer in (self._client, self._server):
            writer.close()


class Proxy:
    """A proxy for the server of `url`; `proxy.url` connects through it."""

    def __init__(self, url: str, wire: Wire | None = None) -> None:
        self.wire: Wire = wire or PostgresWire()
        self._target = self.wire.place(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = self.wire.led_to(url, self._listener.getsockname()[1])
        self.delay = 0.0
        """Seconds by which all data is delayed, either way."""
        self.cuts = 0
        """The number of cuts at a statement."""
        self.cuts_alone = 0
        """The number of those at an autocommitted statement."""
        self.links_cut = 0
        """The number of reset connections."""
        self._new: Literal["pass", "hole", "refuse"] = "pass"
        self._cuts: dict[bool, tuple[When, str]] = {}
        """The armed cuts: one for autocommitted statements only, and one for any statement."""
        self._has_cut = {False: threading.Event(), True: threading.Event()}
        self._links: set[ProxiedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: WeakSet[asyncio.WriteTransport] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection."""
        self._each(ProxiedConnection.cut)

    def cut_one(self, chance: random.Random) -> None:
        """Reset one connection."""
        self._each(ProxiedConnection.cut, one_of=chance)

    def fin(self) -> None:
        """Close every connection cleanly."""
        self._each(ProxiedConnection.close)

    def half(self) -> None:
        """Forward requests on the existing connections but no replies: each is half open from now on."""

        def fault(link: ProxiedConnection) -> None:
            link.drops_replies = True

        self._each(fault)

    def hole(self) -> None:
        """Drop all data both ways, also on new connections; nothing is refused."""

        def fault(link: ProxiedConnection) -> None:
            link.drops_requests = link.drops_replies = True

        self._new = "hole"
        self._each(fault)

    def refuse(self) -> None:
        """Reset every connection, and new ones."""
        self._new = "refuse"
        self.cut()

    def heal(self) -> None:
        """Let new connections through again."""
        self._new, self.delay = "pass", 0.0
        self._cuts.clear()

    def arm(self, when: When, statement: str | None = None, *, alone: bool = False) -> None:
        """Cut once, at the next statement with this pattern: before the server receives it, or after it is done.

        With `alone` only at an autocommitted statement. Without a pattern at the next COMMIT or, with `alone`, write.
        """
        self._has_cut[alone].clear()
        self._cuts[alone] = (when, statement or (self.wire.writes if alone else self.wire.commit))

    def cut_within(self, seconds: float, *, alone: bool = False) -> bool:
        """Wait for the armed cut; return whether it was made."""
        return self._has_cut[alone].wait(seconds)

    def disarm(self, *, alone: bool = False) -> None:
        """Disarm the cut."""
        self._cuts.pop(alone, None)

    @property
    def links(self) -> int:
        """The number of connections."""
        return len(self._links)

    def cut_at(self, statement: str, *, is_alone: bool) -> When | None:
        """Return whether to cut at this statement; called by connections. `is_alone`: it is autocommitted."""
        for alone, (when, pattern) in list(self._cuts.items()):
            if (is_alone or not alone) and re.search(pattern, statement, re.IGNORECASE | re.DOTALL):
                self.disarm(alone=alone)
                self.cuts += 1
                self.cuts_alone += alone
                self._has_cut[alone].set()
                return when
        return None

    def close(self) -> None:
        """Close all connections and end the thread."""

        async def end() -> None:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listener.close()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _each(self, fault: Callable[[ProxiedConnection], None], *, one_of: random.Random | None = None) -> None:
        async def all_of_them() -> None:
            links = list(self._links)
            for link in [one_of.choice(links)] if one_of is not None and links else links:
                fault(link)

        self._call(all_of_them())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=self._listener))
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end_the_rest())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _end_the_rest(self) -> None:
        """Close connections that were accepted while the others were closed, or were interrupted while closing."""
        await asyncio.sleep(0)  # accepted connections become tasks in the next turn of the loop
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0)  # they close their sockets in the next turn

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:  # always true in a coroutine
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._transports.add(writer.transport)
        if self._new == "refuse":
            writer.transport.abort()
            return
        try:
            from_server, to_server = await _connected(*self._target)
        except OSError:
            writer.transport.abort()
            return
        except asyncio.CancelledError:  # the proxy was closed while this connection was being made
            writer.transport.abort()
            raise
        self._transports.add(to_server.transport)
        link = ProxiedConnection(self, writer, to_server)
        link.drops_requests = link.drops_replies = self._new == "hole"
        self._links.add(link)
        try:
            await link.run(reader, from_server)
        finally:
            self._links.discard(link)
