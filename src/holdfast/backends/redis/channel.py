"""A connection that redis-py has opened, read and written without its streams.

The driver opens it: addresses, TLS, user, database. From then on its transport belongs to `Channel`, a protocol of
asyncio over the parser of hiredis. The streams took about 20 µs of CPU time for each call (an enqueue 121 µs with them,
94 without; most of the rest is the kernel's), and a quarter of that of a batch of 500.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse

_NOTHING = object()
_hiredis: Any = hiredis  # its types allow commands of one word only
_pack = _hiredis.pack_command
Word = bytes | str | float


class Channel(asyncio.Protocol):
    """Sends commands and receives their replies, in order."""

    def __init__(self, connection: Any) -> None:
        """`connection` is open, without an outstanding reply; it must no longer be used."""
        self._loop = asyncio.get_running_loop()
        self._writer, self._reader = connection._writer, self  # noqa: SLF001 - the driver gives its transport no other way
        connection._writer = connection._reader = None  # noqa: SLF001 - it would close the transport when it is deleted
        self._replies: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._lost: Exception | None = None
        self._until = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        parse_error = connection._parser.parse_error  # noqa: SLF001 - error replies become the driver's errors
        self._parser = hiredis.Reader(protocolError=InvalidResponse, replyError=parse_error, notEnoughData=_NOTHING)
        self._transport: Any = self._writer.transport
        self._transport.set_protocol(self)

    async def exchange(self, commands: Sequence[tuple[Word, ...]], timeout: float) -> list[Any]:
        """Send commands together, and return their replies, in order; an error reply is an error of the driver in it.

        Raises errors of the driver if the connection is lost, and `TimeoutError` if not all replies come in time.
        """
        if self.at_eof():
            raise self._lost or ConnectionLost("the server has closed the connection")
        self._transport.write(b"".join(map(_pack, commands)))
        self._until = self._loop.time() + timeout
        while len(self._replies) < len(commands):
            if self._lost is not None:
                raise self._lost
            if self._alarm is None:  # it may fire between two replies
                self._alarm = self._loop.call_at(self._until, self._check_time)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return [self._replies.popleft() for _ in commands]

    def _check_time(self) -> None:
        """Fail a call that has waited for too long; otherwise check again at its time limit."""
        self._alarm = None
        if self._waiter is None:
            return
        if self._loop.time() < self._until:
            self._alarm = self._loop.call_at(self._until, self._check_time)
        elif not self._waiter.done():
            self._waiter.set_exception(TimeoutError("no reply in time"))

    @property
    def is_connected(self) -> bool:
        """Whether it was not dropped."""
        return self._writer is not None

    def at_eof(self) -> bool:
        """Whether it can no longer be used: it is closed, or has received something unrequested."""
        return self._lost is not None or bool(self._replies) or self._transport.is_closing()

    # -- what the transport calls

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and wake the waiting call."""
        try:
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not _NOTHING:
                self._replies.append(reply)
        except InvalidResponse as error:
            self._lost = error
            self._transport.abort()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting call."""
        self._lost = self._lost or ConnectionLost(f"the connection was closed ({exc or 'by the server'})")
        if self._alarm is not None:
            self._alarm.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._replies or self._lost is not None):
            self._waiter.set_result(None)
