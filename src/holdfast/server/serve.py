"""Run the server as a program, with uvicorn, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette

from holdfast.errors import ConfigError
from holdfast.server.access import is_loopback
from holdfast.server.application import asgi
from holdfast.server.head_limit import HTTP_PROTOCOL
from holdfast.server.state import ServerState
from holdfast.telemetry import measure

if TYPE_CHECKING:
    from holdfast.app.app import App

PORT: Final = 8484
_BACKLOG: Final = 2048
_GRACE: Final = 3  # seconds for requests in flight; claims that wait are answered at once


class HttpServer(uvicorn.Server):
    """Ends the waits of claims before it closes connections: otherwise each would delay the end by its wait."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close."""
        self._state.claims.stop()
        await super().shutdown(sockets)


def serve(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    prefix: str = "",
    read_only: bool = False,
    requires_token: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the API and the dashboard of an app; `announce` is called with the URL once it can be reached.

    Raises `ConfigError` if the address is not of this machine only and the store has no token, or it is in use.
    """
    asyncio.run(_serve(app, host, port, prefix, announce, read_only=read_only, requires_token=requires_token))


async def _serve(
    app: App,
    host: str,
    port: int,
    prefix: str,
    announce: Callable[[str], None],
    *,
    read_only: bool,
    requires_token: bool,
) -> None:
    measure(app)
    application = asgi(app, prefix=prefix, read_only=read_only, requires_token=requires_token)
    state: ServerState = application.state.holdfast
    try:
        await state.opened()
        await check_tokens(app, host)
        bound = _bind(host, port)
        number = bound.getsockname()[1]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{number}{prefix}/")
        await HttpServer(config_of(application), state).serve([bound])
    finally:
        await state.close()


def config_of(application: Starlette) -> uvicorn.Config:
    """Return the settings of uvicorn for a server."""
    return uvicorn.Config(
        application,
        http=HTTP_PROTOCOL,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the address of the peer decides who is on this machine
        timeout_graceful_shutdown=_GRACE,
    )


async def check_tokens(app: App, host: str) -> None:
    """Raise `ConfigError` if other machines can reach the host, and the store has no valid token."""
    if is_loopback(host):
        return
    if all(token.has_expired for token in await app.tokens.list()):
        raise ConfigError(
            f"other machines can reach {host}, and the store has no valid token, so none could be used: create one "
            "with `holdfast server token create NAME --scope read`, or serve on --host 127.0.0.1"
        )


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises `ConfigError` with the reason."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"there is no address {host!r}: {error}") from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"{host}:{port} cannot be used ({error.strerror}): choose another --port") from error
    bound.listen(_BACKLOG)  # callers that come before uvicorn is ready wait
    return bound
