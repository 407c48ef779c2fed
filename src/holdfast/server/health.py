"""`/livez`, `/readyz` and `/metrics`, for probes and Prometheus.

The probes need no token and say only whether a check has passed. Metrics name queues and tasks, so they need the role
read.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.access import Role, require
from holdfast.server.state import state_of
from holdfast.telemetry.exposition import CONTENT_TYPE, render
from holdfast.telemetry.health import Health, live, ready

_may_read = require(Role.READ)


def routes() -> list[BaseRoute]:
    """Return the routes."""
    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]


async def livez(_: Request) -> Response:
    """Answer whether this process is alive, whatever the store does."""
    return _answer(live())


async def readyz(request: Request) -> Response:
    """Answer whether the store can be used; as any request, it opens the store if no lifespan event has come."""
    state = state_of(request)
    return _answer(await ready(state.app, None if state.settings.read_only else state.opened))


def _answer(health: Health) -> Response:
    checks = {name: check.ok for name, check in health.checks.items()}
    return Response(
        msgspec.json.encode({"ok": health.ok, "checks": checks}), health.status, media_type="application/json"
    )


async def metrics(request: Request) -> Response:
    """Return the metrics of the store and of this process."""
    await _may_read(request)
    return Response(await render(state_of(request).app), headers={"content-type": CONTENT_TYPE})
