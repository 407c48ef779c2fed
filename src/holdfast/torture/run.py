"""From a plan to a report."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import ConfigError, HoldfastError, SchemaMismatch, Unsupported
from holdfast.testing.kafka_server import KafkaServer, kafka_server
from holdfast.testing.mysql_server import Flavour, mysql_server
from holdfast.testing.redis_server import redis_server
from holdfast.torture.checker import RunVerdict, check
from holdfast.torture.conductor import Conductor
from holdfast.torture.dump import Figures, dump
from holdfast.torture.failure import RunFailed
from holdfast.torture.plan import RunPlan
from holdfast.torture.progress import RunPhase, RunProgress
from holdfast.torture.recoveries import recoveries
from holdfast.torture.report import RunReport, report_of
from holdfast.torture.server import OwnServer, RunServer
from holdfast.torture.target import Target, target_of

_MYSQL: Mapping[str, Flavour] = {"mariadb": "mariadb", "mysql": "mysql"}


@contextmanager
def own_server(kind: str = "postgresql", *, keeps: bool = False) -> Generator[RunServer]:
    """Start a server for the run; remove it afterwards, except for what is to be kept.

    A kept server is stopped cleanly, so that it can be started again. No server outlives this process, however it ends.
    """
    if kind == "redis":
        with redis_server(sync="always") as server:
            server.is_kept = keeps
            yield server
        return
    if kind in _MYSQL:
        with mysql_server(_MYSQL[kind], is_durable=True) as mysql:
            mysql.is_kept = keeps
            yield mysql
        return
    with own_postgres(keeps=keeps) as server:
        yield server


@contextmanager
def own_broker() -> Generator[KafkaServer]:
    """Start a broker of Kafka for the events of the run; remove it afterwards."""
    with kafka_server() as broker:
        yield broker


@contextmanager
def own_postgres(*, keeps: bool = False) -> Generator[OwnServer]:
    """Start a PostgreSQL server."""
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
    """Start a guard process that ends the server in a folder if this process dies first."""
    guard = subprocess.Popen(  # noqa: S603 - our own interpreter
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
        raise ConfigError("the guard process of the server did not start")
    return guard


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):  # it was killed: nothing is left to guard
        if guard.stdin is not None:
            guard.stdin.write(b".")


def new_history(wanted: Path | None, run: str) -> Path:
    """Return an empty, writable directory for the history; raises `ConfigError`."""
    try:
        if wanted is None:
            return Path(tempfile.mkdtemp(prefix=f"holdfast-history-{run}-"))
        wanted.mkdir(parents=True, exist_ok=True)
        if any(wanted.iterdir()):
            raise ConfigError(f"{wanted} is not empty: choose a new directory for the history")
        tempfile.TemporaryFile(dir=wanted).close()
    except OSError as error:
        place = wanted or tempfile.gettempdir()
        reason = error.strerror or error
        raise ConfigError(
            f"cannot write the history to {place} ({reason}): choose another --history directory"
        ) from error
    return wanted


def no_verdict(error: Exception) -> Exception:
    """Return the meaning of an error in the middle of a run; an error of Holdfast itself is returned unchanged.

    An error of the store, its driver or the machine, such as a full disk, ends a run without a verdict.
    """
    if isinstance(error, ConfigError | Unsupported | SchemaMismatch | RunFailed):
        return error
    if isinstance(error, HoldfastError):
        return RunFailed(str(error) or type(error).__name__)
    if isinstance(error, (OSError, sqlite3.Error, *_driver_errors())):
        return RunFailed(f"{type(error).__name__}: {error}")
    return error


def _driver_errors() -> list[type[Exception]]:
    """Return the error types of the driver of a server, if the run uses it."""
    found = {"psycopg": "Error", "redis": "RedisError", "pymysql": "MySQLError"}
    return [getattr(sys.modules[driver], name) for driver, name in found.items() if driver in sys.modules]


async def torture(
    plan: RunPlan, target: Target, *, history: Path, progress: RunProgress, server: RunServer | None = None
) -> RunReport:
    """Run, read the store, check the history, and report."""
    await asyncio.to_thread(target.create)
    conductor = Conductor(plan, target, history=history, progress=progress, server=server)
    return await reported(conductor, dump, check, recoveries)


async def reported(
    conductor: Conductor,
    dump: Callable[..., Figures],
    check: Callable[[Path], RunVerdict],
    recoveries: Callable[[Path], list[float]],
) -> RunReport:
    """Run a conductor, write the final dump, check the history, and report."""
    progress, history = conductor.progress, conductor.history
    try:
        await conductor.run()
        progress.phase = RunPhase.READING
        figures = await asyncio.to_thread(dump, conductor.target, conductor.log, processes=conductor.processes_left)
    finally:
        conductor.log.close()
    progress.phase = RunPhase.CHECKING
    verdict = await asyncio.to_thread(check, history)
    times = await asyncio.to_thread(recoveries, history)
    progress.phase = RunPhase.OVER
    return report_of(conductor, figures, verdict, times)


__all__ = ["new_history", "no_verdict", "own_broker", "own_postgres", "own_server", "reported", "target_of", "torture"]
