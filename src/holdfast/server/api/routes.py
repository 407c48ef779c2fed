"""The operations of the API, their routes, and the document that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.access import caller_of
from holdfast.server.api import about, enqueue, events, job_leases, jobs, leases, queues, records
from holdfast.server.api.openapi import openapi
from holdfast.server.api.operation import Operation, routes_of

OPERATIONS: Final[tuple[Operation, ...]] = (
    *about.OPERATIONS,
    *enqueue.OPERATIONS,
    *jobs.OPERATIONS,
    *leases.OPERATIONS,
    *job_leases.OPERATIONS,
    *queues.OPERATIONS,
    *events.OPERATIONS,
    *records.OPERATIONS,
)


def api_routes() -> Sequence[BaseRoute]:
    """Return the routes of the API."""
    return [Route("/v1/openapi.json", show_document), *routes_of(OPERATIONS)]


@cache
def document() -> bytes:
    """Return the OpenAPI document of the API, as it is committed."""
    return msgspec.json.format(msgspec.json.encode(openapi(OPERATIONS)), indent=1) + b"\n"


async def show_document(request: Request) -> Response:
    """Return the document to any caller with at least one scope."""
    await caller_of(request)
    return Response(document(), media_type="application/json")
