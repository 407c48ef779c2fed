"""Waits that end when the client goes away: otherwise a claim could lease jobs to a client that no longer listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request

from holdfast.server.problems import Problem

T = TypeVar("T")


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; cancel it, and raise `Problem`, if the client closes the connection before."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Problem(400, "client-disconnected", "the client closed the connection")
        return doing.result()
    finally:
        for task in (doing, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # the result was taken above, or does not matter now
                await task


async def _disconnected(request: Request) -> None:
    """Return when the client is gone; the body has been read, so nothing else arrives."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
