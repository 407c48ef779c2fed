"""What a route needs besides its request: the app, the settings of the server, and the parts that requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.server.attempts import RemoteAttempts
from holdfast.server.claims import WaitingClaims
from holdfast.server.extending import Extending
from holdfast.server.operating import Operating

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.server.access import Caller, Role
    from holdfast.server.problems import Problem
    from holdfast.store.backend import Backend

Authorize = Callable[[Request], "Role | str | Caller | Awaitable[Role | str | Caller | None] | None"]
"""Decides what a request may do; None refuses it. It may be a coroutine function."""

Redact = Callable[[str, Any], Any]
"""Given the name of a task and a value of its job as JSON data, returns what may be shown."""

ProblemPage = Callable[[Request, "Problem"], Response]
"""Shows a problem to a person instead of a program."""

MAX_BODY: Final = 8 * 1024 * 1024
"""Bytes. The payload of one job is at most 256 KiB, and a batch may hold many."""


class ServerSettings(msgspec.Struct, frozen=True):
    """The settings of a server.

    `requires_token`: also requests from this machine need a token, for example because a proxy forwards others.
    """

    prefix: str = ""
    read_only: bool = False
    authorize: Authorize | None = None
    redact: Redact | None = None
    requires_token: bool = False
    max_body: int = MAX_BODY


class ServerState:
    """What all requests of one server share."""

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self.problem_page: ProblemPage | None = None
        """How a problem is shown to a browser outside of the API; the dashboard sets it."""
        self.claims = WaitingClaims(self)
        self.extending = Extending(self)
        self.attempts = RemoteAttempts(app)
        self.operating = Operating(app)
        self._opening = asyncio.Lock()
        self._opened_here = False
        self._has_begun = False

    async def opened(self) -> Backend:
        """Return the open store; the first call opens it, installs it if it is empty, and begins background work."""
        if not self.app.is_open:
            async with self._opening:
                if not self.app.is_open:
                    await self.app.opened()
                    self._opened_here = True
        if not (self._has_begun or self.settings.read_only):
            self._has_begun = True
            self.operating.begin()
        return self.app.backend

    async def close(self) -> None:
        """End the maintenance; close the store, unless it was open before the server used it."""
        await self.claims.close()
        await self.extending.close()
        await self.operating.close()
        self._has_begun = False
        if self._opened_here:
            self._opened_here = False
            await self.app.close()


def state_of(request: Request) -> ServerState:
    """Return the state of the server that answers this request."""
    return cast("ServerState", request.app.state.holdfast)
