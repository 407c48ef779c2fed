"""Effects in the store, committed together with the completion: in the loop, in threads, in processes, in steps."""

from __future__ import annotations

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, insert_into, row, take_effect, take_effect_blocking
from holdfast.torture.work.base import Work, calls_of


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
            await connection.execute(insert_into("step"), row(ctx.job))
        await ctx.progress(50, "one step of two")
        await take_effect(ctx)


WORKS = (
    Work(name="transfer", weight=12, takes=Takes.TRANSACTION, draw=calls_of(transfer)),
    Work(name="transfer_in_thread", weight=5, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_thread)),
    Work(name="transfer_in_process", weight=0.5, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_process)),
    Work(name="transfer_in_steps", weight=1, takes=Takes.TRANSACTION, draw=calls_of(transfer_in_steps)),
)
