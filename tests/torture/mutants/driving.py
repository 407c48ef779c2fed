"""A short torture run in which every process but this one is a mutant.

It is made of the parts of `holdfast torture` (its producer and workers, its recording of the port, its dump, its
checker), but with few jobs, small workers and one kind of fault, aimed: a bug shows itself within seconds, or a run
that says "caught" would be luck.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.torture.mutants.crew import Crew
from tests.torture.mutants.faults import MIXES
from tests.torture.mutants.load import CONTROL, environment
from tests.torture.mutants.mutant import PULLING

from holdfast.app.app import App
from holdfast.torture.checker import RunVerdict, check
from holdfast.torture.dump import dump
from holdfast.torture.events import Clock, RunBegan, Snapshot
from holdfast.torture.history import now_us
from holdfast.torture.log import Log
from holdfast.torture.target import Target, target_of
from holdfast.torture.target.jobs import LEFT

LEASE = 1.5
DRAIN = 20.0  # seconds; what a mutant has stranded stays so
_PATIENCE = 90.0  # for the product as it is, on a machine that may be busy
_RECOVERY = LEASE + 15.0
_OVERTAKING = 1.2


class Outcome(NamedTuple):
    """What came of a run: the verdict of the checker, how long it took, and whether all jobs ended."""

    verdict: RunVerdict
    seconds: float
    is_drained: bool


@contextmanager
def mutated(name: str) -> Generator[None]:
    """Let the Python processes that are started meanwhile be mutants."""
    changes = environment(name)
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def drive(name: str, url: str, *, folder: Path, seed: int, under: str) -> Outcome:
    """Run under a mix of faults, drain, dump and check."""
    began = time.monotonic()
    history = folder / f"history-{seed}"
    history.mkdir(parents=True)
    target = target_of(url)
    target.create()
    asyncio.run(_install(target))
    target.prepare()
    log = Log(history, f"mutant-{seed}", lambda _: None)
    log.writer.write(
        RunBegan(
            at_us=now_us(),
            seed=seed,
            store=target.store,
            lease_us=_us(LEASE),
            recovery_us=_us(_RECOVERY),
            overtaking_us=_us(_OVERTAKING),
        )
    )
    look(target, log)
    with mutated(name), Crew(log, target, history, lease=LEASE, seed=seed, claims_directly=under == PULLING) as crew:
        MIXES[under](crew)
        look(target, log)
        is_drained = drained(crew, within=_PATIENCE if name == CONTROL else DRAIN)
        crew.end()
    dump(target, log, processes=0)
    log.close()
    return Outcome(check(history), time.monotonic() - began, is_drained)


async def _install(target: Target) -> None:
    async with App(target.url):
        """Opening installs the tables."""


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def look(target: Target, log: Log) -> dict[str, int]:
    """Count the jobs and read the store's clock, into the history."""
    sent_us = now_us()
    counts = target.jobs.counts()
    log.writer.write(Snapshot(at_us=now_us(), counts=counts, sent_us=sent_us))
    sent_us = now_us()
    store_us = target.clock()
    log.writer.write(Clock(at_us=now_us(), store_us=store_us, sent_us=sent_us))
    return counts


def drained(crew: Crew, *, within: float) -> bool:
    """Wait until nothing is left to do; False if that takes too long."""
    give_up = time.monotonic() + within
    while time.monotonic() < give_up:
        crew.keep()
        counts = look(crew.target, crew.log)
        if not any(counts.get(state, 0) for state in LEFT):
            return True
        time.sleep(0.2)  # the rhythm of looking
    return False
