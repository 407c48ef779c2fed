"""Jobs that enqueue others in their own transaction: the child exists if and only if the effect does."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.jobs.context import Context
from holdfast.model.ids import new_id
from holdfast.torture.events import EnqueueAnswered, EnqueueCalled, EnqueueRefused, EnqueueUnknown, Takes
from holdfast.torture.history import now_us
from holdfast.torture.names import QUEUE
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, put, write
from holdfast.torture.work.base import COMMITS_EFFECTS, Work, calls_of
from holdfast.torture.work.transactions import transfer

_ROLLED_BACK = (LeaseLost, StoreUnavailable)


@app.task(queue=QUEUE, retry=AGAIN)
async def enqueues_child(ctx: Context) -> None:
    """Write the effect, and enqueue a child that writes its own."""
    with attempt(ctx), _recorded_child(ctx) as child:
        async with ctx.transaction() as connection:
            await write(connection, "effect", ctx.job)
            await transfer.options(job_id=child).enqueue()


@app.task(queue=QUEUE, retry=AGAIN)
def enqueues_child_in_thread(ctx: Context) -> None:
    """The same in a thread."""
    with attempt(ctx), _recorded_child(ctx) as child, ctx.sync.transaction() as connection:
        transfer.options(job_id=child).sync.enqueue()
        put(connection, "effect", ctx.job)


@contextmanager
def _recorded_child(ctx: Context) -> Generator[str]:
    """Record the enqueue of a child, under an id of this attempt only, and its outcome."""
    child, call = new_id(), f"{ctx.job.id}-{ctx.fence}"
    recorder.write(
        EnqueueCalled(
            at_us=now_us(),
            call=call,
            jobs=(child,),
            size=1,
            task=transfer.name,
            queue=QUEUE,
            takes=Takes.TRANSACTION,
            max_attempts=transfer.task.max_attempts,
            using=True,
        )
    )
    try:
        yield child
    except _ROLLED_BACK as error:
        recorder.write(EnqueueRefused(at_us=now_us(), call=call, jobs=(child,), error=type(error).__name__))
        raise
    except BaseException as error:
        recorder.write(EnqueueUnknown(at_us=now_us(), call=call, jobs=(child,), error=type(error).__name__))
        raise
    recorder.write(EnqueueAnswered(at_us=now_us(), call=call, jobs=(child,)))


WORKS = (
    Work(
        name="enqueues_child",
        weight=1,
        takes=Takes.TRANSACTION,
        draw=calls_of(enqueues_child),
        needs=COMMITS_EFFECTS,
    ),
    Work(
        name="enqueues_child_in_thread",
        weight=0.5,
        takes=Takes.TRANSACTION,
        draw=calls_of(enqueues_child_in_thread),
        needs=COMMITS_EFFECTS,
    ),
)
