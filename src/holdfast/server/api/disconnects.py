"""Waits of clients, which end when the client goes away.

Otherwise a claim could lease jobs to a client that no longer listens.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.requests import Request

from holdfast.server.problems import Problem

T = TypeVar("T")
_SPREAD: Final = 0.1


def spread(wait: float) -> float:
    """Return the wait of a client with jitter, so that clients do not retry in step.

    It is up to a tenth shorter: no client waits longer than it has asked for.
    """
    return wait * random.uniform(1 - _SPREAD, 1)  # noqa: S311 - nothing is kept secret by it


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
