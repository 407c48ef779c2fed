"""A node in a process of its own; what it does with an event, the event says.

`STREAM_DEAF` takes the hints of the store from it. `STREAM_BROKEN` names a verb of allocation that fails unforeseen.
`STREAM_STOP_IN_ALLOT` names a file: the first process to make it is stopped when it has found itself to be the leader
and before its moves are committed. `STREAM_PROCESSES` runs several nodes, without fixed ids, under a supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from tests.system.apps.standing import is_first, stop_inside

from holdfast import App, Event, EventContext, Timing

app = App(os.environ["STREAM_URL"])
NODE = os.environ.get("STREAM_NODE", "node")
IS_SQLITE = app.backend.url.startswith("sqlite")
STYLE = "?" if IS_SQLITE else "%s"
INSERT = f"insert into stream_effect values ({', '.join([STYLE] * 6)})"  # noqa: S608 - our own words
SETTINGS: dict[str, Any] = {
    "category": "orders",
    "poll_interval": 0.1,
    "retry": 0.05,
    "max_attempts": 3,
    "on_error": os.environ.get("STREAM_ON_ERROR", "block"),
}
_logger = logging.getLogger("app")


def record(what: str, event: Event, fence: int) -> None:
    """Note the beginning or end of a call: one line, one write."""
    place = (event.stream, event.partition_id, event.position, fence)
    line = json.dumps([what, NODE, os.getpid(), *place, time.monotonic_ns()])
    with Path(os.environ["STREAM_RECORD"]).open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def row(event: Event, ctx: EventContext) -> tuple[object, ...]:
    return (event.partition_id, event.position, event.stream, event.version, NODE, ctx.fence)


async def act(event: Event) -> None:
    """Do what the event asks for, before its effect."""
    asked = event.payload
    match asked.get("do"):
        case "gate":
            _logger.info("at the gate %d", event.position)
            await asyncio.to_thread(wait_at, asked["gate"])
        case "block_once":
            if is_first(asked["mark"]):
                _logger.info("blocks %d", event.position)
                time.sleep(asked["seconds"])  # noqa: ASYNC251 - the loop itself is blocked: that is the point
        case "wait":
            _logger.info("waits %d", event.position)
            await asyncio.sleep(asked["seconds"])
        case "stubborn":
            _logger.info("stubborn %d", event.position)
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


if os.environ.get("STREAM_HANDLER") == "thread":

    @app.consumer("billing", **SETTINGS)
    def billing(event: Event, ctx: EventContext) -> None:
        record("begin", event, ctx.fence)
        try:
            if event.payload.get("do") == "gate":
                _logger.info("at the gate %d", event.position)
                wait_at(event.payload["gate"])
            with ctx.sync.transaction() as connection:
                connection.execute(INSERT, row(event, ctx))
        finally:
            record("end", event, ctx.fence)

else:

    @app.consumer("billing", **SETTINGS)
    async def billing_async(event: Event, ctx: EventContext) -> None:
        record("begin", event, ctx.fence)
        try:
            await act(event)
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, row(event, ctx))
                if "stop" in event.payload and is_first(event.payload["mark"]):
                    await stop_inside(connection, event.payload["stop"])
        finally:
            record("end", event, ctx.fence)


def deafen() -> None:
    """Neither give nor take hints, as behind a pooler that knows no LISTEN."""

    def listen(_: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    notifier: Any = app.backend.notifier
    notifier.listen = listen
    notifier.notify = lambda: None


def stop_in_allot(mark: str) -> None:
    """Stop between the look at the epoch and the commit of the moves."""
    patched: Any = import_module("holdfast.backends.sql.streams.shares")
    written = patched.write

    def write(*arguments: Any) -> Any:
        if is_first(mark):
            signal.raise_signal(signal.SIGSTOP)
        return written(*arguments)

    patched.write = write


def break_down(verb: str) -> None:
    """Let a verb of allocation, or the heartbeat, die of an unexpected error."""
    error = RuntimeError(f"an error in {verb} that nobody foresaw")

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    class Broken:
        def node_heartbeat(self, *_: Any) -> None:
            raise error

        def close(self) -> None: ...

    if verb == "node_heartbeat":
        backend: Any = app.backend
        type(backend).extender = lambda _: Broken()
    else:
        setattr(type(app.backend.streams.allocations), verb, fail)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format=f"{NODE}: %(message)s", stream=sys.stdout)
    broken = os.environ.get("STREAM_BROKEN")
    if broken:
        break_down(broken)
    if os.environ.get("STREAM_DEAF"):
        deafen()
    mark = os.environ.get("STREAM_STOP_IN_ALLOT")
    if mark:
        stop_in_allot(mark)
    recovery = os.environ.get("STREAM_RECOVERY", "3")
    timing = Timing() if recovery == "default" else Timing.for_recovery(float(recovery))
    drain = os.environ.get("STREAM_DRAIN", "10")
    timing = msgspec.structs.replace(timing, drain=None if drain == "none" else timedelta(seconds=float(drain)))
    processes = int(os.environ.get("STREAM_PROCESSES", "1"))
    return app.run_worker(node_id=NODE if processes == 1 else None, timing=timing, processes=processes)


if __name__ == "__main__":
    sys.exit(main())
