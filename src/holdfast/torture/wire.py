"""Parses the messages of a PostgreSQL client as far as needed to see which statement is about to run."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_ASKS_FOR_ENCRYPTION = {80877103, 80877104}
_HANDSHAKE = 0x16  # the first byte of a TLS handshake


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
        if self._is_encrypted or (self._is_starting and not self._rest and data[:1] == bytes([_HANDSHAKE])):
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
