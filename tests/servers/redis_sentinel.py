"""A throw-away sentinel, which monitors a primary and promotes a replica."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.redis import program_of

from holdfast.testing.redis_server import Flavour, RedisServer

SERVICE = "mymaster"


class Sentinel(RedisServer):
    """Alone it is the majority; it takes a primary for lost after half a second of silence."""

    def __init__(self, folder: Path, program: Path, primary: RedisServer, password: str | None) -> None:
        super().__init__(folder, program)
        self._primary = primary
        self._password = password

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}/0"

    def answers(self, command: str, *, timeout: float = 2.0) -> str:
        reply = super().answers(command, timeout=timeout)
        return "+PONG" if self._password and reply.startswith("-NOAUTH") else reply

    def command(self) -> list[str]:
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.data}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._primary.port} 1",
            f"sentinel down-after-milliseconds {SERVICE} 500",
            f"sentinel failover-timeout {SERVICE} 2000",
            *([f"requirepass {self._password}"] if self._password else []),
        ]
        file = self.data / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [str(self.program), str(file), "--sentinel"]


@contextmanager
def own_sentinel(flavour: Flavour, primary: RedisServer, password: str | None = None) -> Iterator[Sentinel]:
    """Start a sentinel for a primary, and end it with the block."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-sentinel-"))
    sentinel = Sentinel(folder, program_of(flavour), primary, password)
    try:
        sentinel.start()
        yield sentinel
    finally:
        sentinel.close()
