"""Stores for tests: opened with their schema installed, closed afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from holdfast.app.open import open_backend
from holdfast.store.backend import Backend


@asynccontextmanager
async def open_store(
    url: str, *, clock: Callable[[], int] | None = None, events: str | None = None
) -> AsyncGenerator[Backend]:
    """Open the store at a URL, install its schema, and close the store on exit.

    `clock` replaces the store's clock; see `ManualClock`. `events` is the URL of Kafka.
    """
    backend = open_backend(url, clock=clock, events=events)
    await backend.schema.install()
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()
