"""The ASGI application: routes, errors and headers around one app.

It opens the store at start-up, or with the first request if no lifespan event arrives, as in most programs that mount
it. It closes what it has opened when the lifespan ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount

from holdfast.errors import ConfigError, HoldfastError
from holdfast.server import health
from holdfast.server.api.routes import api_routes
from holdfast.server.dashboard import routes as dashboard
from holdfast.server.dashboard.frame import problem_page
from holdfast.server.problems import Problem, answer_error
from holdfast.server.security_headers import SecurityHeaders
from holdfast.server.state import Authorize, Redact, ServerSettings, ServerState

if TYPE_CHECKING:
    from holdfast.app.app import App


def asgi(
    app: App,
    *,
    prefix: str = "",
    read_only: bool = False,
    authorize: Authorize | None = None,
    redact: Redact | None = None,
    requires_token: bool = False,
) -> Starlette:
    """Return the server of an app, to run by an ASGI server or to mount in another program.

    `prefix` is a path in front of all others, for programs that pass requests on with their whole path; a mount in
    Starlette or FastAPI needs none. `read_only` refuses every change. `authorize` decides about each request: it
    returns a role (`"read"`, `"operate"` or `"admin"`), a `Caller`, or None to refuse; without it, requests from this
    machine are allowed everything and others need a token. `redact(task, value)` returns what may be shown of the
    arguments and results of jobs. `requires_token`: requests from this machine need a token, too, as behind a
    proxy on this machine.
    """
    settings = ServerSettings(_checked_prefix(prefix), read_only, authorize, redact, requires_token)
    state = ServerState(app, settings)
    state.problem_page = problem_page

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await state.opened()
        try:
            yield
        finally:
            await state.close()

    routes = _routes()
    answers = dict.fromkeys((Problem, HoldfastError, HTTPException, Exception), answer_error)
    server = Starlette(
        routes=[Mount(settings.prefix, routes=routes)] if settings.prefix else routes,
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers=answers,
        lifespan=lifespan,
    )
    server.state.holdfast = state
    return server


def _checked_prefix(prefix: str) -> str:
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise ConfigError(f"prefix={prefix!r} is not a path: write it like '/holdfast', without a slash at its end")
    return prefix


def _routes() -> Sequence[BaseRoute]:
    return [*api_routes(), *health.routes(), *dashboard.routes()]
