"""Ways for a process to be stopped inside a transaction on PostgreSQL, for handlers of tasks and of consumers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAYS = ("pipeline", "copy", "half_sent", "idle")


def is_first(mark: str) -> bool:
    """Whether no process has come here before."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def stop() -> None:
    """Stop this process, until it is continued."""
    signal.raise_signal(signal.SIGSTOP)


def _numbers_and_stop() -> Iterator[tuple[int]]:
    """Give so many rows that some were sent, and stop before the last."""
    for number in range(300):
        yield (number,)
    stop()
    yield (300,)


async def stop_inside(connection: Any, how: str) -> None:
    """Stop in the middle of what is sent to the server."""
    await connection.execute("create temporary table noise (n integer) on commit drop")
    match how:
        case "pipeline":
            async with connection.cursor() as cursor:
                await cursor.executemany("insert into noise values (%s)", _numbers_and_stop())
        case "copy":
            async with connection.cursor() as cursor, cursor.copy("copy noise from stdin") as copy:
                await copy.write(b"1\n" * 100_000)
                stop()
        case "half_sent":
            os.write(connection.pgconn.socket, b"Q\x00\x00\x10\x00select 'the rest of this is never sent")
            stop()
        case _:
            stop()
