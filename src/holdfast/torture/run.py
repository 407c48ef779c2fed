"""From a plan to a report."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.torture.checker import check
from holdfast.torture.conductor import Conductor
from holdfast.torture.dump import dump
from holdfast.torture.ground import Ground, ground_of
from holdfast.torture.plan import Plan
from holdfast.torture.progress import Phase, Progress
from holdfast.torture.recoveries import recoveries
from holdfast.torture.report import Report, report_of
from holdfast.torture.server import OwnServer


class Foreign(ConfigError):  # noqa: N818 - reads as the sentence it states
    """The store holds what is not ours."""


@contextmanager
def own_server(*, keeps: bool = False) -> Generator[OwnServer]:
    """Start a PostgreSQL for the run, and leave nothing of it behind but what is to be kept.

    What is kept is stopped in order, so that it can be started again. No server outlives this process, whatever
    ends it.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
    server: OwnServer | None = None
    try:
        with _guard(folder, keeps=keeps) as guard:
            server = OwnServer(folder)
            server.is_kept = keeps
            try:
                server.start()
                yield server
            finally:
                (server.end if server.is_kept else server.stop)()
                _dismiss(guard)
    finally:
        if server is None or not server.is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _guard(folder: Path, *, keeps: bool) -> subprocess.Popen[bytes]:
    """Start what ends the server in a folder if this process dies before it has done so."""
    guard = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-P", "-m", "holdfast.torture.server_guard", str(folder), *(["keep"] if keeps else [])],
        bufsize=0,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    if guard.stdout is None or not guard.stdout.readline():
        guard.kill()
        guard.wait()
        raise ConfigError("the process that is to guard the server did not start")
    return guard


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):  # somebody has killed it: it has nothing more to guard
        if guard.stdin is not None:
            guard.stdin.write(b".")


def require_alone(ground: Ground, *, among_others: bool) -> None:
    """Refuse a store that holds jobs or tables of others, unless that is wanted."""
    count = ground.foreign()
    if count and not among_others:
        raise Foreign(
            f"{ground.shown} holds {count} jobs or tables that are not of a torture run: name another database or "
            "schema, or say --yes; their rows are not touched, but their workers will feel the load"
        )


def new_history(wanted: Path | None, run: str) -> Path:
    """Return an empty directory for the history."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix=f"holdfast-history-{run}-"))
    if wanted.exists() and any(wanted.iterdir()):
        raise ConfigError(f"{wanted} is not empty: name a new directory for the history")
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted


async def torture(
    plan: Plan, ground: Ground, *, history: Path, progress: Progress, server: OwnServer | None = None
) -> Report:
    """Run, read the store, check the history, and report."""
    await asyncio.to_thread(ground.wipe)
    conductor = Conductor(plan, ground, history=history, progress=progress, server=server)
    try:
        await conductor.run()
        progress.phase = Phase.READING
        figures = await asyncio.to_thread(dump, ground, conductor.log, processes=conductor.processes_left)
    finally:
        conductor.log.close()
    progress.phase = Phase.CHECKING
    verdict = await asyncio.to_thread(check, history)
    times = await asyncio.to_thread(recoveries, history)
    progress.phase = Phase.OVER
    return report_of(conductor, figures, verdict, times)


__all__ = ["Foreign", "ground_of", "new_history", "own_server", "require_alone", "torture"]
