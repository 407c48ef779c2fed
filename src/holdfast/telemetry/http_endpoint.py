"""`/metrics`, `/livez` and `/readyz` over HTTP, without a framework: a worker needs no more.

Each request has a thread, so that a slow scrape does not delay a probe. It serves names of queues and tasks, and
figures: never arguments, and it changes nothing.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, cast

from prometheus_client import CONTENT_TYPE_LATEST

from holdfast.errors import ConfigError
from holdfast.telemetry.health import Health

_logger = logging.getLogger("holdfast.worker")
_MOST_PORT: Final = 65535
_REQUEST_TIMEOUT: Final = 5.0
_STOP_CHECK: Final = 0.2


class Answers(NamedTuple):
    """What each path answers."""

    metrics: Callable[[], bytes]
    live: Callable[[], Health]
    ready: Callable[[], Health]


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _REQUEST_TIMEOUT
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        answers = cast("MetricsServer", self.server).answers
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                self._send(200, CONTENT_TYPE_LATEST, answers.metrics())
            elif path in {"/livez", "/readyz"}:
                health = answers.live() if path == "/livez" else answers.ready()
                self._send(health.status, "application/json", health.to_json())
            else:
                self._send(404, "text/plain; charset=utf-8", b"try /metrics, /livez or /readyz\n")
        except OSError:  # the client has left
            self.close_connection = True
        except Exception:
            _logger.exception("%s could not be answered", path)
            self._send(500, "text/plain; charset=utf-8", b"see the log of this process\n")

    do_HEAD = do_GET  # noqa: N815 - the names that http.server looks for

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the names of http.server
        """Log nothing: a probe comes every few seconds."""


class MetricsServer(ThreadingHTTPServer):
    """Serves on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, answers: Answers, *, is_over: Callable[[], bool]) -> None:
        super().__init__(("", 0), _MetricsHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answers = answers
        self._is_over = is_over

    def serve(self) -> None:
        """Serve in this thread until stopped."""
        self.timeout = _STOP_CHECK
        while not self._is_over():
            self.handle_request()


def parse_address(address: str | int) -> tuple[str, int]:
    """Return host and port; a port alone is one of the loopback interface. Raises `ConfigError`."""
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or int(port) > _MOST_PORT or (host.count(":") and not host.startswith("[")):
        remedy = "pass a port, such as 9108, or host:port, such as 0.0.0.0:9108 or [::]:9108"
        raise ConfigError(f"{address!r} is not an address to serve metrics on: {remedy}")
    return host.strip("[]") or "127.0.0.1", int(port)


def listen(address: str | int) -> socket.socket:
    """Return a socket that listens at an address; raises `ConfigError` if that is not possible."""
    host, port = parse_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics at {host}:{port}: {error}; choose another address") from error


def url_of(listener: socket.socket) -> str:
    """Return the URL at which a socket listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
