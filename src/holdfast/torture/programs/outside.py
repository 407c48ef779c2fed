"""The outside server: accepts effects over HTTP, each key once, and no smaller fence after a larger one.

It survives every fault of a run, as external systems do, and cannot roll back what it accepted.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from holdfast.torture.events import OutsideAccepted, OutsideRefusal
from holdfast.torture.history import now_us
from holdfast.torture.programs.opening import opened
from holdfast.torture.programs.settings import Listening, OutsideSettings
from holdfast.torture.recorder import recorder

TAKEN, KNOWN, STALE = 201, 200, 409


class OutsideWorld:
    """The accepted effects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._fences: dict[str, int] = {}

    def take(self, key: str, fence: int, payment: str) -> int:
        """Accept an effect, or refuse it; return the status."""
        with self._lock:
            if fence < self._fences.get(key, 0):
                return self._refuse(key, fence, STALE, "a larger fence was seen")
            self._fences[key] = fence
            if key in self._taken:
                return self._refuse(key, fence, KNOWN, "the key is known")
            self._taken.add(key)
            recorder.write(OutsideAccepted(at_us=now_us(), job=key, fence=fence, key=key, payment=payment))
            return TAKEN

    @staticmethod
    def _refuse(key: str, fence: int, status: int, reason: str) -> int:
        recorder.write(OutsideRefusal(at_us=now_us(), job=key, fence=fence, key=key, reason=reason))
        return status


class Handler(BaseHTTPRequestHandler):
    """One request."""

    world = OutsideWorld()

    def do_POST(self) -> None:
        """Accept an effect."""
        effect = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.world.take(str(effect["key"]), int(effect["fence"]), str(effect["payment"])))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Log nothing: the history records requests."""


def main() -> None:
    """Serve until SIGTERM."""
    with opened(OutsideSettings), ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:

        def stop(*_: object) -> None:
            threading.Thread(target=server.shutdown).start()  # waits for the loop that this thread runs

        signal.signal(signal.SIGTERM, stop)
        sys.stdout.buffer.write(msgspec.json.encode(Listening(f"http://127.0.0.1:{server.server_address[1]}")) + b"\n")
        sys.stdout.buffer.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
