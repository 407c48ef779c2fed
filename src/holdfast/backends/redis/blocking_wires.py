"""The connections of handlers in threads."""

from __future__ import annotations

import threading

from holdfast.backends.redis.wire import BlockingWire, Server


class BlockingWires:
    """Connections for handlers in threads, each used by one transaction at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._free: list[BlockingWire] = []
        self._is_closed = False

    def take(self) -> BlockingWire:
        """Return a connection, perhaps not yet connected."""
        with self._lock:
            return self._free.pop() if self._free else BlockingWire(self._server)

    def put(self, wire: BlockingWire) -> None:
        """Return it for another transaction."""
        with self._lock:
            if not self._is_closed:
                self._free.append(wire)
                return
        wire.close()

    def close(self) -> None:
        """Close those that are not in use, and the others when they are returned."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for wire in free:
            wire.close()
