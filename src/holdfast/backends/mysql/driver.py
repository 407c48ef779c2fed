"""The drivers behind one surface: asyncmy for the event loop, PyMySQL for threads.

Both are sent messages of several statements, and asked for what their surfaces leave out: the state of the link, and
the socket. All of that is here.
"""

# ruff: noqa: SLF001 - that is what this module is for

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportUntypedBaseClass=false, reportPrivateUsage=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from typing import Any, NamedTuple

from asyncmy.connection import Connection as AsyncmyConnection
from pymysql import OperationalError
from pymysql.connections import Connection as PymysqlConnection
from pymysql.constants import CLIENT, ER, SERVER_STATUS

FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
BEGIN = "start transaction"
_ISOLATION = "set transaction isolation level read committed"
_LONGEST_CHARACTER = 4  # bytes


class Result(NamedTuple):
    """The answer to one statement: its rows, or how many it changed; `insert_id` is the first generated number."""

    rows: tuple[Any, ...] | None
    changed: int
    insert_id: int


class VerbConnection(AsyncmyConnection):
    """An async connection. `lock_wait`: the seconds that its session waits for a lock, None if not set yet.

    `longest`: the bytes of a message that the server accepts, None if not known yet.
    """

    lock_wait: int | None = None
    longest: int | None = None
    server_capabilities: int
    server_status: int

    async def ask(self, texts: list[str]) -> list[Result]:
        """Run statements, in one trip where the server allows it; after an error none of the later ones runs."""
        if not self.server_capabilities & CLIENT.MULTI_STATEMENTS:
            found = [(await self._ask(text))[0] for text in with_isolation(texts)]
            return found[len(found) - len(texts) :]
        return await self._ask(";".join(texts))

    async def _ask(self, text: str) -> list[Result]:
        driver: Any = self
        check_length(text, self.longest)
        await driver.query(text)
        found = [_result(driver._result)]
        while driver._result.has_next:
            await driver.next_result()
            found.append(_result(driver._result))
        return found


class BlockingConnection(PymysqlConnection):
    """A connection of a thread. `longest`: as above."""

    longest: int | None = None
    server_status: int

    def ask(self, texts: list[str]) -> list[Result]:
        """Run statements, in one trip where the server allows it; after an error none of the later ones runs."""
        driver: Any = self
        if not driver.server_capabilities & CLIENT.MULTI_STATEMENTS:
            found = [self._ask(text)[0] for text in with_isolation(texts)]
            return found[len(found) - len(texts) :]
        return self._ask(";".join(texts))

    def set_read_timeout(self, seconds: float) -> None:
        """Give up on a reply after this time; the connection is broken then."""
        driver: Any = self
        driver._read_timeout = seconds

    def _ask(self, text: str) -> list[Result]:
        driver: Any = self
        check_length(text, self.longest)
        driver.query(text)
        found = [_result(driver._result)]
        while driver._result is not None and driver._result.has_next:
            driver.next_result()
            found.append(_result(driver._result))
        return found


Either = VerbConnection | BlockingConnection


def with_isolation(texts: list[str]) -> list[str]:
    """Return statements that go one by one, with the isolation of a transaction that begins among them.

    A proxy that refuses messages of several statements may run a transaction in another session than the one that was
    set up. The next transaction of a session is meant, whichever statements come between.
    """
    if BEGIN in texts and not any(text.startswith("set transaction") for text in texts):
        return [_ISOLATION, *texts]
    return texts


def check_length(text: str, longest: int | None) -> None:
    """Raise, as the server does, for a message that is too long: the server would also break the connection."""
    if longest is not None and len(text) * _LONGEST_CHARACTER >= longest and len(text.encode()) >= longest:
        raise OperationalError(ER.NET_PACKET_TOO_LARGE, f"a message of more than {longest} bytes")


def _result(found: Any) -> Result:
    rows = found.rows if found.description is not None else None
    return Result(rows, max(0, found.affected_rows), found.insert_id or 0)


def is_open(connection: Either) -> bool:
    """Return whether a connection can be used, as far as this side knows."""
    driver: Any = connection
    if isinstance(connection, BlockingConnection):
        return bool(driver.open)
    return bool(driver.connected and driver._transport is not None and not driver._stream_broken)


def is_in_transaction(connection: Any) -> bool:
    """Return whether the server's last reply said that a transaction is open."""
    return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def has_unread(connection: Any) -> bool:
    """Return whether the answers to some statements of the last message are unread."""
    found = connection._result
    return found is not None and bool(found.has_next)


def is_idle(connection: Either) -> bool:
    """Return whether a connection is open and between transactions."""
    return is_open(connection) and not is_in_transaction(connection)


def has_gone(connection: Either) -> bool:
    """Return whether an idle connection is unusable."""
    return not is_idle(connection) or is_being_closed(connection)


def is_being_closed(connection: Either) -> bool:
    """Return whether the server is closing a connection between statements: unsolicited bytes, or the end of them."""
    found = _socket(connection)
    if found is None or found.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(found.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _socket(connection: Either) -> Any:
    driver: Any = connection
    if isinstance(connection, BlockingConnection):
        return driver._sock
    return None if driver._transport is None else driver._transport.get_extra_info("socket")


def hang_up(connection: BlockingConnection) -> None:
    """Break a connection that another thread may be using: its call fails at once."""
    found = _socket(connection)
    if found is not None:
        with contextlib.suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)


def drop(connection: Either) -> None:
    """Close at once, without waiting for the server; callable from any thread."""
    driver: Any = connection
    if isinstance(connection, BlockingConnection):
        driver._force_close()  # `close` would send a message to the server first
        return
    transport, driver._transport, driver._connected = driver._transport, None, False
    loop: asyncio.AbstractEventLoop = driver.loop
    if transport is None or loop.is_closed():
        return
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        transport.abort()
    else:
        loop.call_soon_threadsafe(transport.abort)
