"""Tasks and a consumer whose effects all change one row; an attempt that counts twice is one too many."""

from __future__ import annotations

import os
from typing import Any

from holdfast import App, Context, Event, EventContext

app = App(os.environ.get("CONFLICTING_URL", "sqlite:///unused.db"))
LEVEL: Any = os.environ.get("CONFLICTING_ISOLATION", "read committed")
TABLES = b"create table total (n integer not null); insert into total values (0); create table effect (job_id text)"
EFFECT = "insert into effect values (%s)"
CHANGE = "update total set n = n + 1"

SETTINGS: dict[str, Any] = {"category": "orders", "poll_interval": 0.05, "max_attempts": 1, "on_error": "skip"}


@app.task(max_attempts=1)
async def in_loop(ctx: Context) -> None:
    async with ctx.transaction(isolation=LEVEL) as connection:
        await connection.execute(EFFECT, (ctx.job.id,))
        await connection.execute(CHANGE)
        ctx.result = ctx.job.attempt


@app.task(max_attempts=1)
def in_thread(ctx: Context) -> None:
    with ctx.sync.transaction(isolation=LEVEL) as connection:
        connection.execute(EFFECT, (ctx.job.id,))
        connection.execute(CHANGE)
        ctx.result = ctx.job.attempt


@app.task(max_attempts=1, executor="process")
async def in_process(ctx: Context) -> None:
    async with ctx.transaction(isolation=LEVEL) as connection:
        await connection.execute(EFFECT, (ctx.job.id,))
        await connection.execute(CHANGE)
        ctx.result = ctx.job.attempt


@app.consumer("billing", **SETTINGS)
async def billing(event: Event, ctx: EventContext) -> None:
    async with ctx.transaction(isolation=LEVEL) as connection:
        await connection.execute(EFFECT, (event.id,))
        await connection.execute(CHANGE)


@app.consumer(
    "billing-process", category="orders", poll_interval=0.05, max_attempts=1, on_error="skip", executor="process"
)
def billing_in_process(event: Event, ctx: EventContext) -> None:
    with ctx.sync.transaction(isolation=LEVEL) as connection:
        connection.execute(EFFECT, (event.id,))
        connection.execute(CHANGE)
