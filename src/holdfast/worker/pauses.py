"""How a worker waits between two decisions."""

from __future__ import annotations

import asyncio
import random


async def pause(changed: asyncio.Event, wait: float | None) -> None:
    """Wait for an event, or for the time that the machine decided, with jitter if it is a poll."""
    if wait is None:
        await changed.wait()
        return
    if wait > 0.1:  # noqa: PLR2004 - short waits are local deadlines, only polls are spread
        wait *= 1 - 0.2 * random.random()  # noqa: S311 - jitter
    timer = asyncio.get_running_loop().call_later(wait, changed.set)
    try:
        await changed.wait()
    finally:
        timer.cancel()
