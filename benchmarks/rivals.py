"""Rivals, measured next to us: other libraries, each in an environment of its own, driven by a program in `peers/`.

They are installed by name from the package indexes into a folder for temporary files, which is kept for the next run
and can be thrown away. A driver is started as `driver WHAT COUNT`, with its database in the environment, and prints one
line of JSON: how many jobs the database says were done, and in how many seconds. A rival that cannot be installed, or
fails, or loses a job, is named with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.bench import Bench
from benchmarks.raw.common import TARGET
from benchmarks.record import Peer, Record
from benchmarks.scenarios import drain, enqueue, latency

_DRIVERS = Path(__file__).parent / "peers"
_INSTALL_PATIENCE = 600.0
_PATIENCE = 900.0
_FEW = 20_000

MEASURES: Mapping[str, tuple[str, Callable[[Bench], float]]] = {
    "enqueue.bulk": ("bulk", enqueue.bulk_rate),
    "enqueue.one": ("one", enqueue.one_rate),
    "drain.one": ("drain", drain.rate),
    "latency": ("latency", latency.p50),
}
"""By the name of our figure: what a driver is asked for, and how our own rate is measured beside it."""


class PeerError(Exception):
    """A rival could not be installed or measured; the text says why."""


class Rival(msgspec.Struct, frozen=True):
    """A library, and how to get and drive it. `offers` are tried in turn until one can be installed."""

    name: str
    store: str
    driver: str
    offers: tuple[tuple[str, ...], ...]
    most: int = 100_000  # slow ones are given fewer jobs, so that a run comes to an end
    asked: tuple[str, ...] = ("bulk", "one", "drain")

    @property
    def is_node(self) -> bool:
        return self.driver.endswith(".mjs")


RIVALS = (
    Rival("huey", "sqlite", "with_huey.py", (("huey",),), _FEW),
    Rival("graphile-worker", "postgresql", "graphile_worker.mjs", (("graphile-worker", "pg"),)),
    Rival("pg-boss", "postgresql", "pg_boss.mjs", (("pg-boss@12", "pg"), ("pg-boss@12.35", "pg"))),
    Rival("pgqueuer", "postgresql", "with_pgqueuer.py", (("pgqueuer[asyncpg]", "uvloop"),)),
    Rival("awa-pg", "postgresql", "with_awa.py", (("awa-pg", "asyncpg"),), _FEW),
    Rival("bullmq", "redis", "bullmq.mjs", (("bullmq", "ioredis"),), asked=("bulk", "one", "drain", "latency")),
    Rival("dramatiq", "redis", "with_dramatiq.py", (("dramatiq[redis]",),), _FEW),
    Rival("taskiq", "redis", "with_taskiq.py", (("taskiq", "taskiq-redis"),), _FEW),
    Rival("celery", "redis", "with_celery.py", (("celery[redis]",),), _FEW),
    Rival("procrastinate", "postgresql", "with_procrastinate.py", (("procrastinate", "psycopg[binary,pool]"),), _FEW),
)


class Installed(msgspec.Struct, frozen=True):
    """A rival that is ready: the beginning of its command line, and its version."""

    command: tuple[str, ...]
    version: str


class DriverResult(msgspec.Struct, frozen=True):
    """What a driver reports."""

    done: int
    seconds: float


Install = Callable[[Rival], Installed]


def cache() -> Path:
    """Return the folder of the environments: ours alone, since what lies there is run."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-bench-peers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        message = f"{folder} is not a folder that only this user can write to"
        raise PeerError(message)
    return folder


def install(rival: Rival) -> Installed:
    """Install a rival, unless an earlier run has."""
    home = cache() / rival.name
    stamp = home / "installed"
    if not stamp.exists():
        reasons: list[str] = []
        for packages in rival.offers:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            try:
                _install_node(home, packages) if rival.is_node else _install_python(home, packages)
            except PeerError as error:
                reasons.append(str(error))
                continue
            stamp.touch()
            break
        else:
            raise PeerError("; ".join(reasons))
    if not rival.is_node:
        python = str(home / "bin" / "python")
        shown = f"from importlib.metadata import version; print(version({rival.name!r}))"
        return Installed((python, str(_DRIVERS / rival.driver)), _output([python, "-c", shown]).strip())
    for file in _DRIVERS.glob("*.mjs"):  # node looks for packages beside the program
        shutil.copy(file, home)
    package = json.loads((home / "node_modules" / rival.name / "package.json").read_text(encoding="utf-8"))
    return Installed((_tool("node"), str(home / rival.driver)), str(package["version"]))


def _install_python(home: Path, packages: Sequence[str]) -> None:
    _output([sys.executable, "-m", "venv", str(home)], patience=_INSTALL_PATIENCE)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _output([*pip, *packages], patience=_INSTALL_PATIENCE)


def _install_node(home: Path, packages: Sequence[str]) -> None:
    _tool("node")
    npm = [_tool("npm"), "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(home)]
    _output([*npm, *packages], patience=_INSTALL_PATIENCE)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not on the path"
        raise PeerError(message)
    return found


def _output(command: Sequence[str], *, more: Mapping[str, str] | None = None, patience: float = 60.0) -> str:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{Path(command[0]).name} did not come to an end within {patience:g} s"
        raise PeerError(message) from None
    except OSError as error:
        message = f"{command[0]} could not be started: {error}"
        raise PeerError(message) from None
    if done.returncode != 0:
        errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        lines = [line for line in errors if "rror" in line] or errors or ["it printed nothing"]
        message = f"{Path(command[0]).name} ended with code {done.returncode}: {lines[-1][:300]}"
        raise PeerError(message)
    return done.stdout


def measure(bench: Bench, installed: Installed, what: str, count: int) -> float:
    """Let a driver do `count` jobs in a database of its own; return jobs a second, or the median latency in ms."""
    with bench.store.foreign() as target:
        out = _output([*installed.command, what, str(count)], more={TARGET: target}, patience=_PATIENCE)
    try:
        result = msgspec.json.decode(out.strip().splitlines()[-1], type=DriverResult)
    except (IndexError, msgspec.DecodeError) as error:
        message = f"its driver reported nothing that can be read ({error}): {out[-200:]!r}"
        raise PeerError(message) from None
    if result.done != count:
        message = f"{what}: {result.done} of {count} jobs are done by its database"
        raise PeerError(message)
    return 1000 * result.seconds if what == "latency" else count / result.seconds


def compare(
    bench: Bench,
    names: Sequence[str],
    log: Callable[[str], None],
    *,
    rivals: Sequence[Rival] = RIVALS,
    install: Install = install,
    measures: Mapping[str, tuple[str, Callable[[Bench], float]]] = MEASURES,
) -> tuple[list[Record], list[Peer]]:
    """Measure each rival of a store by turns with ourselves; `raw` is theirs, and the ratio ours by theirs."""
    records: list[Record] = []
    peers: list[Peer] = []
    for rival in rivals:
        if rival.store != bench.store.name:
            continue
        version = ""
        try:
            log(f"{rival.name}: installing")
            installed = install(rival)
            version = installed.version
            for name in names:
                if name in measures and measures[name][0] in rival.asked:
                    log(f"{rival.name}: {name}")
                    records.append(_side_by_side(bench, rival, installed, name, *measures[name]))
        except PeerError as error:
            peers.append(Peer(rival.name, version, str(error)))
        else:
            peers.append(Peer(rival.name, version))
    return records, peers


def _side_by_side(
    bench: Bench, rival: Rival, installed: Installed, name: str, what: str, ours: Callable[[Bench], float]
) -> Record:
    few = {"one": bench.sizes.single, "latency": bench.sizes.latency}
    count = few.get(what) or min(bench.sizes.jobs, rival.most)
    return bench.compare(
        f"{name}.peer.{rival.name}",
        lambda: ours(bench),
        lambda: measure(bench, installed, what, count),
        unit="ms" if what == "latency" else "jobs/s",
    )
