"""Consumers whose handlers run in child processes; what a handler does with an event, the event says."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import App, Event, EventContext

app = App(os.environ.get("PROCESS_CONSUMERS_URL", "sqlite:///unused.db"))
SETTINGS: dict[str, Any] = {
    "category": "orders",
    "poll_interval": 0.05,
    "retry": 0.05,
    "max_attempts": 3,
    "executor": "process",
}


def insert(event: Event) -> tuple[str, tuple[object, ...]]:
    style = "?" if app.backend.url.startswith("sqlite") else "%s"
    return f"insert into process_effect values ({style}, {style})", (event.id, os.getpid())  # noqa: S608 - our words


def act(event: Event) -> None:
    """Do what the event asks for."""
    asked = event.payload
    if "mark" in asked:
        with Path(asked["mark"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if asked.get("once") and len(Path(asked["mark"]).read_text().splitlines()) > 1:
            return
    match asked.get("do"):
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("as asked")
        case "sleep":
            time.sleep(60)


@app.consumer("billing-async", **SETTINGS)
async def billing(event: Event, ctx: EventContext) -> None:
    act(event)
    async with ctx.transaction() as connection:
        await connection.execute(*insert(event))


@app.consumer("billing-plain", **SETTINGS)
def billing_plain(event: Event, ctx: EventContext) -> None:
    act(event)
    with ctx.sync.transaction() as connection:
        connection.execute(*insert(event))


@app.consumer("billing-skip", **{**SETTINGS, "on_error": "skip", "timeout": 2.0})
def billing_skip(event: Event) -> None:
    act(event)


@app.consumer("billing-batch", **SETTINGS, batch=10)
async def billing_batch(events: list[Event], ctx: EventContext) -> None:
    await asyncio.sleep(0)
    async with ctx.transaction() as connection:
        for event in events:
            act(event)
            await connection.execute(*insert(event))
