"""A throw-away MySQL or MariaDB server for the tests.

Where it comes from, the first that answers: the URL in $HOLDFAST_TEST_MYSQL, a server on this machine, the package
manager when root (only the server's program, which starts no service). It listens on a free port of the loopback
address only. One server serves a whole pytest run, as in `postgres.py`.

Databases are used by one test after another: creating the tables takes longer than most tests do. What a test has
written is deleted; a database with other tables than the installation's gets them dropped.
"""

from __future__ import annotations

import atexit
import fcntl
import os
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
from typing import IO, Any
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT
from tests.servers.missing import give_up
from tests.servers.mysql_keeper import serve, start

from holdfast.app.open import open_backend

URL_VARIABLE = "HOLDFAST_TEST_MYSQL"
_TIMEOUT = 90.0
_PROCESS = os.getpid()
_held: list[IO[str]] = []
_unused: list[str] = []


class NoServerError(Exception):
    """No server can be had on this machine; the text says what was tried."""


@cache
def server_url() -> str:
    """Return the URL of the run's server, with a slash at its end, started if need be; raises `NoServerError`."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return given.rstrip("/") + "/"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / f"holdfast-mysql-{os.getuid()}-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    lock = (folder / "used").open("a")
    fcntl.flock(lock, fcntl.LOCK_SH)
    _held.append(lock)  # held until this process has ended
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        url = folder / "url"
        if not url.exists():
            _start_keeper(folder, url)
        return url.read_text()


def _start_keeper(folder: Path, url: Path) -> None:
    server = find_server()
    log = folder / "keeper.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.mysql_keeper", str(folder), str(server)],
            cwd=Path(__file__).parents[2],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests; the keeper ends after them
        )
    until = time.monotonic() + _TIMEOUT
    while not url.exists():
        if keeper.poll() is not None or time.monotonic() > until:
            raise NoServerError(f"{server} did not start:\n{log.read_text()}")
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process on purpose: nobody here waits for it


def find_server() -> Path:
    """Return the program of a server; raises `NoServerError`."""
    found = _on_this_machine() or _from_the_package_manager()
    if found is None:
        message = (
            f"no MySQL or MariaDB: set {URL_VARIABLE} to a URL without a database, mysql://root@127.0.0.1:3306, or "
            "install a server (apt install mariadb-server-core)"
        )
        raise NoServerError(message)
    return found


def _on_this_machine() -> Path | None:
    for name in ("mariadbd", "mysqld"):
        found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if found is not None:
            return Path(found)
    return None


def _from_the_package_manager() -> Path | None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "mariadb-server-core"]
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return _on_this_machine()


def connect(url: str, **settings: Any) -> pymysql.Connection[Any]:
    """Open a plain connection to the server, or the database, of a URL."""
    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port or 3306, "user": parts.username or "root"}
    flags = {"client_flag": CLIENT.MULTI_STATEMENTS, "ssl_disabled": True, "autocommit": True}
    database = parts.path.strip("/") or None
    return pymysql.connect(**{**place, **flags, "password": parts.password or "", "database": database, **settings})


def run(url: str, *statements: str) -> list[Any]:
    """Run statements on a connection for themselves; return the rows of the last one."""
    connection = connect(url)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection.close()


@contextmanager
def own_database() -> Iterator[str]:
    """Yield the URL of an empty database, and drop it afterwards; skips without a server."""
    try:
        server = server_url()
    except NoServerError as error:
        give_up("MySQL", str(error))
    name = f"test_{secrets.token_hex(6)}"
    run(server, f"create database {name}")
    try:
        yield server + name
    finally:
        run(server, f"drop database if exists {name}")


@contextmanager
def clean_database() -> Iterator[str]:
    """Yield the URL of a database with our tables, without jobs or events; skips without a server."""
    url = take_database()
    try:
        yield url
    finally:
        return_database(url)


def take_database() -> str:
    """Return such a URL, for `return_database` afterwards."""
    return _unused.pop() if _unused else _installed()


def return_database(url: str) -> None:
    """Empty a database for the next test, or drop it."""
    try:
        _empty(url)
    except pymysql.MySQLError:  # a test has dropped it, or has left a lock
        _drop(url)
    else:
        _unused.append(url)


def _installed() -> str:
    try:
        server = server_url()
    except NoServerError as error:
        give_up("MySQL", str(error))
    url = f"{server}test_{secrets.token_hex(6)}"
    run(server, f"create database {url.rpartition('/')[2]}")
    run(url, open_backend(url).schema.script())
    return url


@cache
def _tables(url: str) -> list[str]:
    return [name for (name,) in run(url, "show tables")]


def _empty(url: str) -> None:
    ours = [name for name in _tables(url) if name.startswith("holdfast_")]
    connection = connect(url, read_timeout=20)
    try:
        with connection.cursor() as cursor:
            cursor.execute("set session innodb_lock_wait_timeout = 3, session lock_wait_timeout = 3")
            cursor.execute("show tables")
            found = {name for (name,) in cursor.fetchall()}
            if not set(ours) <= found:
                raise pymysql.OperationalError(0, "tables are missing")
            for name in found - set(ours):
                cursor.execute(f"drop table `{name}`")
            kept = {"holdfast_meta", "holdfast_leadership"}
            deletes = [f"delete from {name}" for name in ours if name not in kept]  # noqa: S608 - our names
            restored = "update holdfast_leadership set epoch = 0, node_id = null, incarnation = null, until_at = 0"
            cursor.execute(";".join([*deletes, restored]))
            while cursor.nextset():
                pass
    finally:
        connection.close()


def _drop(url: str) -> None:
    server, _, name = url.rpartition("/")
    run(server + "/", f"drop database if exists {name}")


@atexit.register
def _drop_unused() -> None:
    """Leave nothing on a server that outlives the tests; a process that a test has forked drops nothing."""
    if os.environ.get(URL_VARIABLE) and os.getpid() == _PROCESS:
        for url in _unused:
            _drop(url)


class OwnServer:
    """A server of one test, which it may stop, starve and set up as it likes."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._data = folder / "data"
        self._server = find_server()
        self._process, self.url = start(folder, self._server, **settings)
        self._settings = {**settings, "port": str(urlsplit(self.url).port)}

    def stop(self) -> None:
        """Stop at once, as a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def start(self) -> None:
        """Start again on the same data and port."""
        self._process, self.url = serve(self._data, self._server, **self._settings)


@contextmanager
def own_server(**settings: str) -> Iterator[OwnServer]:
    """Give a test a server for itself."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-mysql-own-"))
    folder.chmod(0o711)
    server = OwnServer(folder, settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
