"""The protocol of MySQL and MariaDB as a proxy must know it: which statements run, and when they are done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from holdfast.torture.urls import through

_HERE = "127.0.0.1"
_PORT = 3306
_HEAD = 4  # the length of a packet in three bytes, and its number
_QUERY = b"\x03"
_REQUEST_FOR_TLS = 32  # bytes; what a client sends to log in is longer
_TLS = 0x08  # in the second byte of the client's flags
_MORE_RESULTS = 0x08  # in the first byte of the server's status
# The last packet of a reply: OK with two numbers, status and warnings; the end of rows; or an error.
_DONE = re.compile(rb"\0\0.\0(?:[^\xfc-\xfe]|\xfc..|\xfd...){2}(.).{3}\Z|\x05\0\0.\xfe..(.).\Z", re.DOTALL)
_ERROR = re.compile(rb"\0.\xff..#", re.DOTALL)


class MysqlWire:
    """The protocol of MySQL and MariaDB. A message has one statement or several, and may be a whole transaction."""

    commit = r"(?:^|;)\s*commit\s*$"
    writes = (
        r"^(?=.*\b(?:insert\s+into|(?<!for )update|delete\s+from)\b)"
        r"(?:(?!\s*(?:begin|start\s+transaction)\b)|.*;\s*commit\s*$)"
    )

    def place(self, url: str) -> tuple[str, int]:
        """Return the place of the server."""
        parts = urlsplit(url)
        return parts.hostname or _HERE, parts.port or _PORT

    def led_to(self, url: str, port: int) -> str:
        """Return the URL by way of a port of this machine."""
        return through(url, port)

    def requests(self) -> MysqlRequests:
        """Return a parser."""
        return MysqlRequests()

    def is_answered(self, replies: bytes) -> bool:
        """Wait for the last result of the message, or for an error."""
        found = _DONE.search(replies)
        if found is not None:
            status = found[1] or found[2]
            return not status[0] & _MORE_RESULTS
        return _ERROR.search(replies) is not None


class MysqlRequests:
    """The packets of one connection, complete ones only; of encrypted ones nothing is seen."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_encrypted = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Return each packet that is now complete, with the text of its statements."""
        self._rest += data
        while (packet := self._next()) is not None:
            yield packet, None if self._is_encrypted else self._statement(packet[3], packet[_HEAD:])

    def _next(self) -> bytes | None:
        """Take the next packet from what has come; of an encrypted connection all of it."""
        size = len(self._rest)
        end = _HEAD + int.from_bytes(self._rest[:3], "little") if not self._is_encrypted else size
        if not size or size < end:
            return None
        packet, self._rest = self._rest[:end], self._rest[end:]
        return packet

    def _statement(self, number: int, body: bytes) -> str | None:
        """Return the text of a query: a command is the first packet of its exchange, and so has the number 0."""
        if number == 1 and len(body) == _REQUEST_FOR_TLS and body[1] & _TLS:
            self._is_encrypted = True
        return body[1:].decode(errors="replace") if number == 0 and body[:1] == _QUERY else None
