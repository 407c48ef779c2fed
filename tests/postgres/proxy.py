"""A TCP proxy that cuts the line around a COMMIT."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Passes bytes on to the server behind `url`; once armed, cuts at the next COMMIT.

    `before`: the COMMIT never reaches the server. `after`: it does, and the reply never comes back.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._listener.getsockname()[1]}"))
        self._armed: str | None = None
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def arm(self, when: str) -> None:
        """Cut at the next COMMIT."""
        self._armed = when

    def close(self) -> None:
        """End all connections."""
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for source, sink, asks in ((client, server, True), (server, client, False)):
                    thread = threading.Thread(target=self._pass_on, args=(source, sink, asks), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if asks and self._armed and b"commit\x00" in data.lower():
                    when, self._armed = self._armed, None
                    source.shutdown(socket.SHUT_RDWR)  # the client hears nothing more
                    if when == "after":
                        sink.sendall(data)
                        sink.shutdown(socket.SHUT_WR)  # the server reads to the end, then ends the session
                    else:
                        sink.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
