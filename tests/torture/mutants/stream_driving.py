"""Short runs of streams whose processes are mutants; the conductor and the checker are not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.torture.mutants.driving import mutated
from tests.torture.mutants.load import ROOT, environment
from tests.torture.mutants.mutant import Mutant

from holdfast.torture.plan import Fault, Profile, RunPlan
from holdfast.torture.report import RunReport
from holdfast.torture.streams.conductor import StreamProgress
from holdfast.torture.streams.run import torture_streams
from holdfast.torture.target import target_of
from holdfast.torture.target.kafka_events import events_of

_MIXES: Final[dict[str, dict[Fault, int]]] = {
    "calm": {},
    "kills": {Fault.KILL: 5, Fault.FAILPOINT: 3},
    "terms": {Fault.TERM: 4},
    "stops": {Fault.STOP: 4},
}
_EXECUTABLE = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]


def drive_streams(name: str, url: str, *, folder: Path, seed: int, under: str, events: str | None = None) -> RunReport:
    """Run under a mix of faults, drain, dump and check; `events` is the URL of Kafka, if they are there."""
    profile = Profile(jobs=600, seconds=8.0, limit=20.0, drain=25.0, workers=2, producers=2, faults=_MIXES[under])
    plan = RunPlan(name="mutant", profile=profile, seed=seed, lease=2.0)
    target = target_of(url)
    if events is not None:
        target.keep_events_in(events_of(events))
    history = folder / f"history-{seed}"
    history.mkdir()
    with mutated(name):
        run = torture_streams(plan, target, history=history, progress=StreamProgress(plan, target.shown))
        return asyncio.run(run)


def conform(mutant: Mutant) -> subprocess.CompletedProcess[str]:
    """Run the part of the conformance suite that is to fail, in a process that is the mutant."""
    store = "sqlite" if mutant.store == "sqlite" else "postgres"
    modules = [f"tests/conformance/streams/{name}.py" for name in mutant.under.split(" or ")]
    return subprocess.run(
        [*_EXECUTABLE, *modules, "-k", f"{store} and not memory"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment(mutant.name)},
        timeout=200,
    )
