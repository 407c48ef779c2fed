"""A thousand clients that only wait: what they cost the store, and the memory of an idle server."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psutil
import pytest
import uvicorn
from tests.server.dashboard.conftest import Site
from tests.server.processes import running_server

from holdfast import App
from holdfast.server import asgi
from holdfast.server.dashboard.pages import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TABS, CLAIMS, WAITS = 400, 400, 200
SECONDS = 10.0
MOST_MEMORY = 80_000_000  # bytes


@asynccontextmanager
async def served(app: App) -> AsyncIterator[int]:
    """Serve on a free port."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        server = uvicorn.Server(uvicorn.Config(asgi(app), log_level="error", timeout_graceful_shutdown=1))
        running = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def opened(port: int, request: str, body: bytes = b"") -> asyncio.StreamReader:
    """Send a request on a connection of its own; its end is that of the test."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fields = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    head = "\r\n".join([f"{request} HTTP/1.1", *fields, "", ""])
    writer.write(head.encode() + body)
    await writer.drain()
    reader.writer = writer  # type: ignore[attr-defined]  # kept with it
    return reader


def requests(job_ids: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return tabs on every page, claims of a hundred kinds, half of them named, and waits for jobs."""
    paths = [page.path for page in PAGES if "{" not in page.path and page.path != "/consumer"]
    tabs = [(f"GET /live?of={paths[n % len(paths)]}", b"") for n in range(TABS)]
    claims = [
        {"queues": [f"q{n % 100}"], "tasks": ["send"], "wait_seconds": 30, "worker_id": f"w{n}" if n % 2 else None}
        for n in range(CLAIMS)
    ]
    waits = [(f"GET /v1/jobs/{job_id}/wait?wait_seconds=30", b"") for job_id in job_ids]
    return [*tabs, *(("POST /v1/leases/claim", msgspec.json.encode(claim)) for claim in claims), *waits]


async def test_a_thousand_waiting_connections_cost_less_than_a_statement_per_second_each(
    url: str, statements: Any, exchanges: Any
):
    asked_since = statements if url.startswith("sqlite") else exchanges
    site = Site(url)
    jobs = await site.send.options(delay=3600).enqueue_many([{"to": f"user-{n}"} for n in range(WAITS)])
    wanted = requests([job.id for job in jobs])
    async with served(site.app) as port:
        connections = [await opened(port, request, body) for request, body in wanted]
        await asyncio.sleep(5)  # each has asked once
        asked_since()
        began = time.monotonic()
        await asyncio.sleep(SECONDS)
        asked, took = len(asked_since()), time.monotonic() - began
        assert not any(reader.at_eof() for reader in connections)
        for reader in connections:
            reader.writer.close()  # type: ignore[attr-defined]

    await site.app.close()
    assert len(connections) == 1000
    sys.stdout.write(f"{asked / took:.0f} statements/s for {len(connections)} connections\n")  # shown with -s
    assert asked / took < len(connections)


def test_an_idle_server_uses_at_most_eighty_megabytes(url: str):
    with running_server(url) as server:
        time.sleep(3)  # what is imported late
        memory = psutil.Process(server.process.pid).memory_info().rss

    sys.stdout.write(f"{memory / 1e6:.1f} MB\n")
    assert memory <= MOST_MEMORY
