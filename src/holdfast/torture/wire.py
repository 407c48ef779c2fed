"""What a proxy must know of the protocol between a client and its server: which statement is about to run.

`PostgresWire` is the protocol of PostgreSQL; `holdfast.torture.mysql_wire` and `holdfast.torture.resp` have
those of MySQL and of Redis.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from holdfast.torture.server_address import led_to, place_of

COMMIT = r"^\s*commit\b"
WRITES = r"\b(insert\s+into|update|delete\s+from)\b"
_READY = b"Z\x00\x00\x00\x05"  # ReadyForQuery: the request is committed, or rejected
_ASKS_FOR_ENCRYPTION = {80877103, 80877104}
HANDSHAKE = 0x16
"""The first byte of a TLS handshake."""


class Requests(Protocol):
    """The requests of one connection."""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Return each request that is now complete, with the statement that it runs, if any."""
        ...


class Wire(Protocol):
    """The protocol of a kind of server."""

    @property
    def commit(self) -> str:
        """The pattern of a statement that commits a transaction; empty if there is none."""
        ...

    @property
    def writes(self) -> str:
        """The pattern of a statement that writes."""
        ...

    def place(self, url: str) -> tuple[str, int]:
        """Return the host, or the directory of a socket, and the port of the server of a URL."""
        ...

    def led_to(self, url: str, port: int) -> str:
        """Return the URL by way of a port of this machine."""
        ...

    def requests(self) -> Requests:
        """Return a parser for the requests of a new connection."""
        ...

    def is_answered(self, replies: bytes) -> bool:
        """Return whether the server is done with what was sent to it, by the last bytes of its replies since then."""
        ...


class PostgresWire:
    """The protocol of PostgreSQL."""

    commit = COMMIT
    writes = WRITES

    def place(self, url: str) -> tuple[str, int]:
        """Return the place of the server, as libpq finds it."""
        place = place_of(url)
        return place.target, place.port

    def led_to(self, url: str, port: int) -> str:
        """Return a URL that libpq takes by way of a port of this machine."""
        return led_to(url, place_of(url), port)

    def requests(self) -> Frontend:
        """Return a parser."""
        return Frontend()

    def is_answered(self, replies: bytes) -> bool:
        """Wait for ReadyForQuery."""
        return _READY in replies


class Frontend:
    """The messages of one connection, complete ones only; simple and extended protocol.

    Once a client encrypts, its bytes are forwarded as they come, and no statement is seen.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_starting = True
        self._is_encrypted = False
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Return each message that is now complete, with the statement that it runs, if any."""
        if self._is_encrypted or (self._is_starting and not self._rest and data[:1] == bytes([HANDSHAKE])):
            self._is_encrypted = True
            yield data, None
            return
        self._rest += data
        while (message := self._next()) is not None:
            yield message, None if self._has_just_started(message) else self._statement(message)

    def _next(self) -> bytes | None:
        head = 0 if self._is_starting else 1
        if len(self._rest) < head + 4:
            return None
        end = head + struct.unpack_from("!I", self._rest, head)[0]
        if len(self._rest) < end:
            return None
        message, self._rest = self._rest[:end], self._rest[end:]
        return message

    def _has_just_started(self, message: bytes) -> bool:
        if not self._is_starting:
            return False
        self._is_starting = struct.unpack_from("!I", message, 4)[0] in _ASKS_FOR_ENCRYPTION
        return True

    def _statement(self, message: bytes) -> str | None:
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            return body.partition(b"\0")[0].decode()
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            self._prepared[name] = rest.partition(b"\0")[0].decode()
        elif kind == b"B":
            portal, name, _ = body.split(b"\0", 2)
            self._portals[portal] = self._prepared.get(name, "")
        elif kind == b"E":
            return self._portals.get(body.partition(b"\0")[0])
        return None
