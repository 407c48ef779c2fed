"""What the yardsticks share: the messages that a benchmark expects, ids, the payload and the handler."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

BATCH = 500
TARGET = "HOLDFAST_BENCH_TARGET"
"""Where a process finds the name of its database: not among its arguments, which everybody on the machine can read."""

decode = msgspec.json.Decoder(dict[str, int]).decode


class Drained(NamedTuple):
    """What one process has done, by its own count."""

    handled: int


class Held(NamedTuple):
    """What the database holds."""

    ids: int
    ready: int
    leased: int
    done: int


def uuids(count: int) -> list[str]:
    """Return UUIDv7s in increasing order: a counter in the twelve bits after the version, the rest random."""
    start = time.time_ns() // 1_000_000
    noise = os.urandom(8 * count).hex()
    ids: list[str] = []
    for index in range(count):
        millisecond = f"{start + (index >> 12):012x}"
        tail = noise[16 * index : 16 * index + 16]
        ids.append(f"{millisecond[:8]}-{millisecond[8:]}-7{index & 0xFFF:03x}-8{tail[:3]}-{tail[3:15]}")
    return ids


async def handle(job_id: str, n: int) -> None:
    """Do nothing with a job."""


def be_a_process(drain: Callable[[str], Drained], watch: Callable[[str, int], list[tuple[int, int]]]) -> None:
    """Be a process of a benchmark: `drain` or `watch COUNT`. Both call `ready_to_go` once they are connected."""
    target = os.environ[TARGET]
    if sys.argv[1] == "drain":
        result: dict[str, Any] = {"handled": drain(target).handled, "cpu": time.process_time() - _began[0]}
    else:
        result = {"starts": watch(target, int(sys.argv[2]))}
    print(json.dumps(result), flush=True)


_began: list[float] = []


def ready_to_go() -> None:
    """Say that this process is ready, and wait for the word."""
    print("ready", flush=True)
    sys.stdin.readline()
    _began.append(time.process_time())
