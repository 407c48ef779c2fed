"""Effects whose last command fails at the end of the transaction: what came before it must be undone."""

from __future__ import annotations

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, put, write
from holdfast.torture.work.base import QUEUES_EFFECTS, Work, calls_of


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=10)
async def transfer_undone_first(ctx: Context) -> None:
    """Write the effect; in the first attempt it is undone."""
    with attempt(ctx):
        async with ctx.transaction() as connection:
            await write(connection, "effect", ctx.job)
            if ctx.job.attempt == 1:
                connection.queue("INCR", connection.key("torture:text"))


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=10)
def transfer_undone_first_in_thread(ctx: Context) -> None:
    """The same in a thread."""
    with attempt(ctx), ctx.sync.transaction() as connection:
        put(connection, "effect", ctx.job)
        if ctx.job.attempt == 1:
            connection.queue("INCR", connection.key("torture:text"))


WORKS = (
    Work(
        name="transfer_undone_first",
        weight=2,
        takes=Takes.TRANSACTION,
        draw=calls_of(transfer_undone_first),
        needs=QUEUES_EFFECTS,
    ),
    Work(
        name="transfer_undone_first_in_thread",
        weight=1,
        takes=Takes.TRANSACTION,
        draw=calls_of(transfer_undone_first_in_thread),
        needs=QUEUES_EFFECTS,
    ),
)
