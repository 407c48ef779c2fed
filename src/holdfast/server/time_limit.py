"""The time that a request may take: a store that hangs must not keep its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.server.problems import Problem

TIME_LIMIT: Final = 30.0
"""Seconds that the check of the caller, and an operation or a page, may take, besides the wait that was asked for."""


@asynccontextmanager
async def within_time(wait: float = 0.0) -> AsyncGenerator[None]:
    """Raise `Problem` 503 if the block takes longer than the wait that was asked for, and the time limit."""
    try:
        async with asyncio.timeout(TIME_LIMIT + wait):
            yield
    except TimeoutError:
        raise Problem(503, "timeout", "the store took too long; repeat the request with the same ids") from None
