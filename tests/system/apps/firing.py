"""A process that fires schedules through many connections for some time: `python firing.py URL CALLERS SECONDS`.

It may be killed at any time.
"""

from __future__ import annotations

import asyncio
import sys
import time

from holdfast.app.open import open_backend
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.backend import Backend


async def fire(backend: Backend, until: float) -> None:
    while time.monotonic() < until:
        try:
            await backend.schedules.fire(["tick"], [], 100)
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.002)


async def main(url: str, callers: int, seconds: float) -> None:
    backend = open_backend(url)
    try:
        await backend.open(install=False)
        until = time.monotonic() + seconds
        await asyncio.gather(*(fire(backend, until) for _ in range(callers)))
    finally:
        await backend.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
