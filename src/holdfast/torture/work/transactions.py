"""Effects in the store, committed together with the completion: in the loop, in threads, in processes, in steps.

On PostgreSQL also in a pipeline, in a COPY and in a statement of which a part is sent. A process that is stopped there
leaves a session that is not idle in its transaction, so that no timeout of the server ends it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, target
from holdfast.torture.work.attempt import (
    attempt,
    insert_into,
    row,
    take_effect,
    take_effect_blocking,
    write,
    writes_effects,
)
from holdfast.torture.work.base import COMMITS_EFFECTS, Work, calls_of

_MOMENT: Final = 0.02  # seconds
_MUCH: Final = b"x" * 3_000_000  # more than the buffers on the way take at once


@app.task(queue=QUEUE, retry=AGAIN)
async def transfer(ctx: Context) -> None:
    """Write the effect in the event loop."""
    with attempt(ctx):
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
def transfer_in_thread(ctx: Context) -> None:
    """Write the effect in a thread."""
    with attempt(ctx):
        take_effect_blocking(ctx)


@app.task(queue=QUEUE, retry=AGAIN, executor="process")
def transfer_in_process(ctx: Context) -> None:
    """Write the effect in a child process."""
    with attempt(ctx):
        take_effect_blocking(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
async def transfer_in_steps(ctx: Context) -> None:
    """Write a step that does not complete the job, then the effect that does."""
    with attempt(ctx):
        async with ctx.transaction(completes=False) as connection:
            await write(connection, "step", ctx.job)
        await ctx.progress(50, "one step of two")
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
async def transfer_in_pipeline(ctx: Context) -> None:
    """Write the effect in a pipeline, and stay in it for a moment."""
    with attempt(ctx):
        if not (writes_effects() and target().has_pipelines):
            await take_effect(ctx)
            return
        async with ctx.transaction() as connection, connection.pipeline():
            await connection.execute(insert_into("effect"), row(ctx.job))
            await asyncio.sleep(_MOMENT)  # the work


@app.task(queue=QUEUE, retry=AGAIN)
async def transfer_by_copy(ctx: Context) -> None:
    """Write the effect by COPY, and stay in it for a moment."""
    with attempt(ctx):
        if not (writes_effects() and target().has_pipelines):
            await take_effect(ctx)
            return
        async with (
            ctx.transaction() as connection,
            connection.cursor() as cursor,
            cursor.copy(target().statements["copy_effect"]) as copy,
        ):
            await copy.write_row(row(ctx.job))
            await asyncio.sleep(_MOMENT)  # the work


@app.task(queue=QUEUE, retry=AGAIN)
async def transfer_half_sent(ctx: Context) -> None:
    """Write the effect, and pause while a statement is partly sent."""
    with attempt(ctx):
        if not (writes_effects() and target().has_pipelines):
            await take_effect(ctx)
            return
        from psycopg import generators

        async with ctx.transaction() as connection:
            await connection.execute(insert_into("effect"), row(ctx.job))
            session = connection.pgconn
            session.send_query_params(target().statements["send_much"].encode(), [_MUCH])
            session.flush()
            await asyncio.sleep(_MOMENT)  # the work
            await connection.wait(generators.execute(session))


WORKS = (
    Work(name="transfer", weight=12, takes=Takes.TRANSACTION, draw=calls_of(transfer)),
    Work(name="transfer_in_thread", weight=5, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_thread)),
    Work(name="transfer_in_process", weight=0.5, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_process)),
    Work(
        name="transfer_in_steps",
        weight=1,
        takes=Takes.TRANSACTION,
        draw=calls_of(transfer_in_steps),
        needs=COMMITS_EFFECTS,
    ),
    Work(name="transfer_in_pipeline", weight=2, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_pipeline)),
    Work(name="transfer_by_copy", weight=1, takes=Takes.TRANSACTION, draw=calls_of(transfer_by_copy)),
    Work(name="transfer_half_sent", weight=0.3, takes=Takes.TRANSACTION, draw=calls_of(transfer_half_sent)),
)
