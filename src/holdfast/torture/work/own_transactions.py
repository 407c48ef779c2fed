"""Effects in a transaction of the handler, on its own connection: `ctx.complete(using=…)`."""

from __future__ import annotations

import time
from typing import Final

from holdfast.errors import OutcomeUnknown
from holdfast.jobs.context import Context
from holdfast.torture.events import EffectBegan, EffectCommitted, EffectRolledBack, EffectUnknown, Takes
from holdfast.torture.history import now_us
from holdfast.torture.names import QUEUE
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, insert_into, row
from holdfast.torture.work.base import JOINS_TRANSACTIONS, Work, calls_of
from holdfast.torture.work.connecting import connected

_MOMENT: Final = 0.02  # seconds


@app.task(queue=QUEUE, retry=AGAIN)
def complete_using_own_connection(ctx: Context) -> None:
    """Write the effect and the completion through the handler's own connection, and commit."""
    with attempt(ctx):
        _complete(ctx)


def _complete(ctx: Context) -> None:
    job, fence, sent_us = ctx.job.id, ctx.fence, now_us()
    recorder.write(EffectBegan(at_us=sent_us, job=job, fence=fence))
    try:
        with connected() as connection:
            connection.execute(insert_into("effect"), row(ctx.job))
            ctx.sync.complete(using=connection.raw)
            time.sleep(_MOMENT)  # a process that is stopped here keeps the lease locked
            connection.commit()
    except OutcomeUnknown as error:
        recorder.write(EffectUnknown(at_us=now_us(), job=job, fence=fence, error=type(error).__name__))
        raise
    except BaseException as error:
        recorder.write(EffectRolledBack(at_us=now_us(), job=job, fence=fence, error=type(error).__name__))
        raise
    recorder.write(EffectCommitted(at_us=now_us(), job=job, fence=fence, sent_us=sent_us))


WORKS = (
    Work(
        name="complete_using_own_connection",
        weight=1,
        takes=Takes.TRANSACTION,
        draw=calls_of(complete_using_own_connection),
        needs=JOINS_TRANSACTIONS,
    ),
)
