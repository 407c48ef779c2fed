"""What a run leaves: records, the machine they were made on, and a file with both."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import msgspec


class Record(msgspec.Struct, frozen=True):
    """One figure. `ratio` is value by raw; None where there is nothing to compare with."""

    name: str
    store: str
    value: float
    unit: str
    raw: float | None
    ratio: float | None


class Machine(msgspec.Struct, frozen=True):
    """Where a run was made, and with what. `sync_us` is how long the disk takes to sync a few bytes."""

    cores: int
    cpu: str
    kernel: str
    python: str
    store: str
    driver: str
    holdfast: str
    sync_us: float
    load: float


class Peer(msgspec.Struct, frozen=True):
    """A rival that took part, or the reason why it could not."""

    name: str
    version: str
    reason: str | None = None


class Report(msgspec.Struct, frozen=True):
    """A whole run."""

    at: str
    commit: str
    jobs: int
    machine: Machine
    records: list[Record]
    peers: list[Peer]


def record(name: str, store: str, value: float, *, unit: str, raw: float | None) -> Record:
    """Return a record with its ratio."""
    return Record(name, store, value, unit, raw, value / raw if raw else None)


def machine(store: str, driver: str) -> Machine:
    """Look at this machine."""
    return Machine(
        cores=os.cpu_count() or 1,
        cpu=_cpu(),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        store=store,
        driver=driver,
        holdfast=version("holdfast"),
        sync_us=round(_sync_time() * 1e6, 1),
        load=round(os.getloadavg()[0], 2),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _sync_time() -> float:
    spans: list[float] = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(20):
            file.write(b"x" * 64)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            spans.append(time.perf_counter() - began)
    return median(spans)


def _commit() -> str:
    try:
        shown = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607 - git of the path
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return shown.stdout.strip()


def report(
    records: list[Record], peers: list[Peer], *, jobs: int, machine: Machine, at: datetime | None = None
) -> Report:
    """Put a run together."""
    when = (at or datetime.now(UTC)).isoformat(timespec="seconds")
    return Report(when, _commit(), jobs, machine, records, peers)


def save(run: Report, path: Path) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
