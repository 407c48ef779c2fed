"""The yardstick of effects on PostgreSQL: each connection writes effect and completion in one transaction.

Claims of 500 go ahead on another connection. A transaction is that of the driver: BEGIN, the effect, the completion
under the fence, COMMIT. In batches, one statement writes the effects and one the completions.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import psycopg

from benchmarks.raw.common import TARGET, decode, ready_to_go
from benchmarks.raw.postgres import Claims, Row, connect_async, finish

PROGRAM = "benchmarks.raw.effects_postgres"


async def overlapped(target: str, connections: int, batch: int) -> int:
    """Claim and write effects at once until nothing is ready; return how many jobs were handled."""
    claims = Claims(await connect_async(target), f"raw-{os.getpid()}")
    writers = [await connect_async(target) for _ in range(connections)]
    waiting: asyncio.Queue[list[Row] | None] = asyncio.Queue(maxsize=1000 // batch)
    handled = 0

    async def claim() -> None:
        while rows := await claims.next():
            for first in range(0, len(rows), batch):
                await waiting.put(rows[first : first + batch])
        for _ in writers:
            await waiting.put(None)

    async def write(connection: psycopg.AsyncConnection[object]) -> None:
        nonlocal handled
        while (rows := await waiting.get()) is not None:
            numbers = [decode(row[2])["n"] for row in rows]
            async with connection.transaction():
                if batch == 1:
                    await connection.execute("insert into effect (n) values (%s)", numbers)
                else:
                    await connection.execute("insert into effect (n) select unnest(%s::bigint[])", (numbers,))
                await finish(connection, rows[0][4], [row[0] for row in rows])
            handled += len(rows)

    ready_to_go()
    await asyncio.gather(claim(), *(write(connection) for connection in writers))
    return handled


def main(connections: str, batch: str) -> None:
    """Be a process of the benchmark."""
    began = time.process_time()
    handled = asyncio.run(overlapped(os.environ[TARGET], int(connections), max(1, int(batch))))
    print(json.dumps({"handled": handled, "cpu": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
