"""The routes of the API."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.server.access import Role, require

_may_read = require(Role.READ)


def api_routes() -> Sequence[BaseRoute]:
    """Return the routes of the API."""
    return [Route("/v1", version, methods=["GET"])]


async def version(request: Request) -> Response:
    """Return the version of the API."""
    await _may_read(request)
    return JSONResponse({"version": "v1"})
