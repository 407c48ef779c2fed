"""The protocol of Redis as a proxy must know it: which command, and which script, is about to run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from holdfast.torture.urls import through
from holdfast.torture.wire import HANDSHAKE

_HERE = "127.0.0.1"
_PORT = 6379
_END = b"\r\n"


class RespWire:
    """The protocol of Redis and Valkey. A script is one request, and commits by itself."""

    commit = ""
    writes = r"^EVAL(?!.*\bflags=[\w,-]*no-writes)"

    def __init__(self) -> None:
        self._scripts: dict[str, str] = {}

    def place(self, url: str) -> tuple[str, int]:
        """Return the place of the server."""
        parts = urlsplit(url)
        return parts.hostname or _HERE, parts.port or _PORT

    def led_to(self, url: str, port: int) -> str:
        """Return the URL by way of a port of this machine."""
        return through(url, port)

    def requests(self) -> RespRequests:
        """Return a parser; all connections of a proxy know the scripts that one of them has loaded."""
        return RespRequests(self._scripts)

    def is_answered(self, replies: bytes) -> bool:
        """A client sends its next request when it has the reply, so that any reply is that to the last request."""
        return bool(replies)


class RespRequests:
    """The requests of one connection; of encrypted ones nothing is seen.

    The statement of a call of a script is EVAL with the text of the script, as far as it was loaded on a way that this
    parser has seen; that of another command are its first words.
    """

    def __init__(self, scripts: dict[str, str]) -> None:
        self._scripts = scripts
        self._rest = b""
        self._has_begun = False
        self._is_encrypted = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Return each request that is now complete, with its statement."""
        self._is_encrypted |= not self._has_begun and data[:1] == bytes([HANDSHAKE])
        self._has_begun = True
        if self._is_encrypted:
            yield data, None
            return
        self._rest += data
        while (found := self._next()) is not None:
            request, words = found
            yield request, self._statement(words)

    def _next(self) -> tuple[bytes, list[bytes]] | None:
        """Take the next request from what has come: an array of texts, each after its length."""
        line, found, _ = self._rest.partition(_END)
        if not found:
            return None
        at = len(line) + len(_END)
        words: list[bytes] = []
        if not line.startswith(b"*"):  # typed by hand
            words = line.split()
        for _ in range(int(line[1:]) if line.startswith(b"*") else 0):
            head = self._rest.find(_END, at)
            if head < 0:
                return None
            begin, size = head + len(_END), int(self._rest[at + 1 : head])
            at = begin + size + len(_END)
            if len(self._rest) < at:
                return None
            words.append(self._rest[begin : begin + size])
        request, self._rest = self._rest[:at], self._rest[at:]
        return request, words

    def _statement(self, words: list[bytes]) -> str | None:
        name = words[0].upper() if words else b""
        if name == b"SCRIPT" and len(words) > 2 and words[1].upper() == b"LOAD":  # noqa: PLR2004 - SCRIPT LOAD text
            self._scripts[hashlib.sha1(words[2], usedforsecurity=False).hexdigest()] = words[2].decode(errors="replace")
        if name == b"EVALSHA" and len(words) > 1:
            sha = words[1].decode(errors="replace").lower()
            return f"EVAL {self._scripts.get(sha, sha)}"
        return b" ".join(words[:2]).decode(errors="replace")
