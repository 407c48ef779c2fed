"""Enqueue over HTTP, beside a bare Starlette handler that makes the same insert, each in a process of its own."""

from __future__ import annotations

import asyncio
import time

from benchmarks import processes
from benchmarks.bench import Bench, check
from benchmarks.http_program import BODY, PATHS
from benchmarks.record import Record

_CONNECTIONS = 32
_CREATED = b"HTTP/1.1 201"
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


async def _send(port: int, path: str, bodies: list[bytes]) -> None:
    """Send requests on one connection, each after the answer to the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
        head = await reader.readuntil(_END)
        await reader.readexactly(int(head.lower().partition(_LENGTH)[2].partition(b"\r")[0]))
        check(head[: len(_CREATED)], _CREATED, "the answer to an enqueue")
    writer.close()
    await writer.wait_closed()


async def _load(port: int, path: str, count: int) -> float:
    """Return the seconds that so many enqueues take over all connections."""
    bodies = [BODY % number for number in range(count)]
    began = time.perf_counter()
    await asyncio.gather(*(_send(port, path, bodies[first::_CONNECTIONS]) for first in range(_CONNECTIONS)))
    return time.perf_counter() - began


def _rate(bench: Bench, side: str) -> float:
    count = 4 * bench.sizes.single
    with bench.store.fresh() as place, processes.started(1, "benchmarks.http_program", place.url, side) as (server,):
        port = int(server.line())
        asyncio.run(_load(port, PATHS[side], _CONNECTIONS))
        seconds = asyncio.run(_load(port, PATHS[side], count))
        held = bench.store.held(place)
        check((held.ids, held.ready), (count + _CONNECTIONS,) * 2, "distinct ids and ready jobs after the enqueue")
    return count / seconds


def enqueue(bench: Bench) -> list[Record]:
    """Jobs one by one, over 32 connections. `raw` is the bare handler."""
    return [
        bench.compare("http.enqueue", lambda: _rate(bench, "ours"), lambda: _rate(bench, "bare"), unit="jobs/s"),
    ]
