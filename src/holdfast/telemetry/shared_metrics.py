"""Metrics of several worker processes in one directory, read by another process.

prometheus-client writes the values of each process to files that are mapped into memory. Its files are named after the
process id, so each restart of a worker would leave files behind. Here they are named after the seat: a worker continues
the counts of its predecessor in the seat, and starts with new gauges.

```text
   supervisor       makes the metrics, and never changes them
   w1, w2, …        the worker processes, one after another in each seat
   release          the processes that release the leases of dead workers; one at a time
```
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, values
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from holdfast.hooks.values import WorkerStart
from holdfast.telemetry.families import JobFamilies, ProcessFamilies
from holdfast.telemetry.seat_board import SeatReport

DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus-client finds the directory, in every process."""


class ProcessName:
    """The name of the files of this process; made in the supervisor, before the first fork."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._supervisor = os.getpid()
        self._seat: str | None = None

    def __call__(self) -> str:
        """Return the name; no two processes that run at the same time have the same."""
        return self._seat or ("supervisor" if os.getpid() == self._supervisor else "release")

    def take_seat(self, start: WorkerStart) -> None:
        """Use the files of a seat, without the gauges of the process that had it before."""
        seat = seat_name(start.seat)
        for file in self._directory.glob(f"gauge_*_{seat}.db"):
            file.unlink(missing_ok=True)
        self._seat = seat


def seat_name(seat: int) -> str:
    """Return the name of a seat, as in the log."""
    return f"w{seat + 1}"


class SharedFamilies(NamedTuple):
    """Metrics whose values are in files."""

    name: ProcessName
    jobs: JobFamilies
    process: ProcessFamilies


@contextmanager
def shared_families(directory: Path) -> Generator[SharedFamilies]:
    """Keep all values that are made while the block runs, here and in forked processes, in files of the directory.

    prometheus-client makes the values of a metric with labels when the labels are first used: so the class of values
    must stay replaced.
    """
    before, usual = os.environ.get(DIRECTORY), values.ValueClass
    os.environ[DIRECTORY] = str(directory)
    name = ProcessName(directory)
    values.ValueClass = values.MultiProcessValue(name)  # type: ignore[no-untyped-call]
    unread = CollectorRegistry(auto_describe=False)  # they are read from the files
    try:
        yield SharedFamilies(name, JobFamilies(unread), ProcessFamilies(unread))
    finally:
        values.ValueClass = usual
        os.environ.pop(DIRECTORY)
        if before is not None:
            os.environ[DIRECTORY] = before


class SharedCollector:
    """Reads the files of all processes, except the gauges of those that have ended."""

    def __init__(self, directory: Path, states: Callable[[], Iterable[SeatReport]]) -> None:
        self._directory = directory
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """Yield the sums over all processes."""
        dead = {seat_name(state.seat) for state in self._states() if not state.is_alive}
        files = [
            str(file)
            for file in self._directory.glob("*.db")
            if not (file.name.startswith("gauge_") and file.stem.rpartition("_")[2] in {*dead, "supervisor"})
        ]
        yield from MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
