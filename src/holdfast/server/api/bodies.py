"""Read the body of a request: at most so many bytes, in bounded time, as JSON of a known type."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.server.problems import Problem
from holdfast.server.state import state_of

_TIME: Final = 10.0  # seconds for a whole body: a slow sender must not hold a request open
_JSON: Final = "application/json"


async def read_body(request: Request, kind: type[Any]) -> Any:
    """Return the body as a value of this type; raise `Problem` 400, 408, 413, 415 or 422."""
    data = await read_bytes(request, state_of(request).settings.max_body)
    if data:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != _JSON:
            raise Problem(415, "unsupported-media-type", f"send the body as {_JSON}, not as {given or 'unnamed'}")
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid-request", f"the body is invalid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "malformed-body", f"the body is not JSON: {error}") from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the body; raise `Problem` 400, 408 or 413."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_TIME):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise Problem(408, "request-timeout", f"the body did not arrive within {_TIME:g} s") from None
    except ClientDisconnect:
        raise Problem(400, "client-disconnected", "the client closed the connection") from None
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(413, "body-too-large", f"the body has more than {limit:,} bytes: send less at once")
