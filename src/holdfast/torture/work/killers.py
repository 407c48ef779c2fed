"""Jobs that kill their worker: these jobs fail, and jobs that ran next to them complete."""

from __future__ import annotations

import os
import signal

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, take_effect_blocking
from holdfast.torture.work.base import Work, calls_of


@app.task(queue=QUEUE, retry=AGAIN)
def kills_its_worker(ctx: Context) -> None:
    """Kill the process, every time."""
    with attempt(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue=QUEUE, retry=AGAIN)
def kills_once(ctx: Context) -> None:
    """Kill the process at the first claim; write the effect at a later one."""
    with attempt(ctx):
        if ctx.job.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        take_effect_blocking(ctx)


WORKS = (
    Work(
        name="kills_its_worker",
        weight=0.02,
        takes=Takes.NOTHING,
        draw=calls_of(kills_its_worker),
        single=True,
        most=6,
    ),
    Work(name="kills_once", weight=0.02, takes=Takes.TRANSACTION, draw=calls_of(kills_once), single=True, most=6),
)
