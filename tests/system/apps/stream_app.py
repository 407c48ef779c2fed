"""A node in a process of its own; what it does with an event, the event says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast import App, Event, EventContext, Timing

app = App(os.environ["STREAM_URL"])
NODE = os.environ.get("STREAM_NODE", "node")
STYLE = "?" if app.backend.url.startswith("sqlite") else "%s"
INSERT = f"insert into stream_effect values ({', '.join([STYLE] * 6)})"  # noqa: S608 - our own words
HANDLER = os.environ.get("STREAM_HANDLER", "async")


def record(what: str, event: Event, fence: int) -> None:
    """Note the beginning or end of a call: one line, one write."""
    line = json.dumps([what, NODE, os.getpid(), event.partition_id, event.position, fence, time.monotonic_ns()])
    with Path(os.environ["STREAM_RECORD"]).open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def row(event: Event, ctx: EventContext) -> tuple[object, ...]:
    return (event.partition_id, event.position, event.stream, event.version, NODE, ctx.fence)


async def act(event: Event) -> None:
    """Do what the event asks for, before its effect."""
    asked = event.payload
    match asked.get("do"):
        case "gate":
            print(f"at the gate {event.position}", flush=True)
            await asyncio.to_thread(wait_at, asked["gate"])
        case "block":
            print(f"blocks {event.position}", flush=True)
            time.sleep(asked["seconds"])  # noqa: ASYNC251 - the loop itself is blocked: that is the point
        case "sleep":
            await asyncio.sleep(asked["seconds"])
        case "stubborn":
            print(f"stubborn {event.position}", flush=True)
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise ValueError("as asked")
        case _:
            pass


def wait_at(gate: str) -> None:
    with Path(gate).open("rb") as file:
        file.read()


if HANDLER == "thread":

    @app.consumer("billing", category="orders", poll_interval=0.1, retry=0.05, max_attempts=3)
    def billing(event: Event, ctx: EventContext) -> None:
        record("begin", event, ctx.fence)
        if event.payload.get("do") == "gate":
            print(f"at the gate {event.position}", flush=True)
            wait_at(event.payload["gate"])
        with ctx.sync.transaction() as connection:
            connection.execute(INSERT, row(event, ctx))
        record("end", event, ctx.fence)

else:

    @app.consumer(
        "billing",
        category="orders",
        poll_interval=0.1,
        retry=0.05,
        max_attempts=3,
        on_error=os.environ.get("STREAM_ON_ERROR", "block"),
    )
    async def billing(event: Event, ctx: EventContext) -> None:
        record("begin", event, ctx.fence)
        await act(event)
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, row(event, ctx))
        record("end", event, ctx.fence)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format=f"{NODE}: %(message)s", stream=sys.stdout)
    timing = Timing.for_recovery(float(os.environ.get("STREAM_RECOVERY", "3")))
    drain = os.environ.get("STREAM_DRAIN", "10")
    timing = msgspec.structs.replace(timing, drain=None if drain == "none" else timedelta(seconds=float(drain)))
    return app.run_worker(node_id=NODE, timing=timing)


if __name__ == "__main__":
    sys.exit(main())
