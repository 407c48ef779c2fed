"""The steps of a run: plan it, produce its jobs, consume them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Generator

import msgspec

from holdfast.cli.demo.conductor import DemoConductor, Killings
from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.view import DemoView

_CHUNK = 5000


class DemoCrew(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a run, and how many of them are killed."""

    workers: int
    batch_size: int
    kill: int


class DemoInterrupted(Exception):  # noqa: N818 - a request, not an error
    """The user interrupted the run; it can be resumed later."""

    def __init__(self, ended: int) -> None:
        super().__init__()
        self.ended = ended


async def produce(records: Records, run: DemoRun, progress: Callable[[int], None], asked: asyncio.Event) -> DemoRun:
    """Enqueue the jobs that are missing, in chunks; an interruption loses nothing."""
    produced = run.produced
    while produced < run.plan.jobs:
        if asked.is_set():
            raise DemoInterrupted(0)
        last = min(produced + _CHUNK, run.plan.jobs)
        await records.produce(run, produced + 1, last)
        produced = last
        progress(produced)
    return msgspec.structs.replace(run, produced=produced)


async def consume(
    records: Records, run: DemoRun, crew: DemoCrew, *, url: str, view: DemoView, asked: asyncio.Event
) -> None:
    """Run workers until no job is left; raise `DemoInterrupted` if the run was interrupted."""
    # Each session draws its own kills: those of earlier sessions have already happened.
    chance = random.Random(f"{run.plan.seed}/kills/{run.killed}")  # noqa: S311 - not used for security
    conductor = DemoConductor(
        url,
        workers=crew.workers,
        batch_size=crew.batch_size,
        killings=Killings(max(0, crew.kill - run.killed), run.plan.jobs, chance),
        ended_before=await records.ended(run),
        on_event=view.event,
    )
    began = time.monotonic()
    view.consuming(conductor, run.plan.jobs)
    watch = asyncio.create_task(_stop_on_request(asked, conductor))
    is_finished = False
    try:
        await conductor.run(view.refresh, every=view.period)
        is_finished = not conductor.is_stopping
    finally:
        watch.cancel()
        await records.end_session(conductor.killed, time.monotonic() - began, finished=is_finished)
    if not is_finished:
        raise DemoInterrupted(conductor.ended)


async def _stop_on_request(asked: asyncio.Event, conductor: DemoConductor) -> None:
    """Forward every request to stop: the first lets batches complete, the second kills the workers."""
    while True:
        await asked.wait()
        asked.clear()
        conductor.stop()


@contextlib.contextmanager
def stopping(asked: asyncio.Event) -> Generator[None]:
    """Set the event on Ctrl-C and SIGTERM."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, asked.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def new_plan(*, jobs: int, success_rate: float, max_attempts: int, work_timeout: float, seed: int | None) -> DemoPlan:
    """Return the plan of a new run, with a random seed if none is given."""
    return DemoPlan(
        jobs=jobs,
        success_rate=success_rate,
        max_attempts=max_attempts,
        work_timeout=work_timeout,
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else seed,
    )
